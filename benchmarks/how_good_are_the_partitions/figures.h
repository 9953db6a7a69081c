#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "workloads.h"

namespace spillway::quality {

/// Time at equal memory and memory at equal time of all partitioners, in many cells: stages, swaps
/// or none, and devices from the smallest on which a step takes at most twice as long up to as
/// large as time-balanced cuts fill.
nlohmann::ordered_json cells(const Workload& workload, bool is_quick);

/// The largest size that each partitioner gets into devices of 16 GB, with the memory reduction of
/// its own source and with ours. A batch counts in 1/32 of the published micro-batch, without
/// flushes.
nlohmann::ordered_json largest_batches(const Workload& workload, bool is_quick);

/// The same of models with more layers: those are repeated whose name begins with `block`, from the
/// first one up to the next.
nlohmann::ordered_json largest_models(const Workload& workload, const std::string& block,
                                      bool is_quick);

/// Of such models nothing but the cuts: nobody swaps or recomputes. By schedule.
nlohmann::ordered_json largest_models_without_reduction(const Workload& workload,
                                                        const std::string& block, bool is_quick);

/// vPipe's and PipeDream's plans of eight stages beside ours.
nlohmann::ordered_json published_plans();

/// Piper's optimum beside ours, on its own BERT-32.
nlohmann::ordered_json piper_optima(const Workload& bert32);

}  // namespace spillway::quality
