#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "spillway/planner/cluster/job_simulation.h"

namespace spillway::scaling {

/// A row of Megatron's table: model-parallel GPUs, and their seconds for 8 samples on V100s.
struct StreamedModel {
  const char* name;
  double hidden;
  std::uint32_t layers;
  double parameters;
  std::uint32_t model_parallel;
  double seconds_of_8;
};

std::span<const StreamedModel> streamed_models();

/// Out-of-core data parallelism on V100s of ABCI, each of which streams the whole model.
cluster::JobTiming streamed_step(const std::string& folder, const StreamedModel& model,
                                 double samples, std::uint32_t gpus);

}  // namespace spillway::scaling
