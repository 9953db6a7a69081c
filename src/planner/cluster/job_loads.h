#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spillway/planner/cluster/job_simulation.h"

namespace spillway::planner {

/// Returns what `JobTiming::host_memory` tells. Devices are by rank, one pipeline after the other.
Bytes fullest_host(const Job& job, const ClusterLinks& links,
                   std::span<const std::uint32_t> devices);

/// Loads by class of the links of these nodes, which are sorted. `carried` is by link.
std::vector<LinkClassLoad> loads_of(const ClusterLinks& links, std::span<const std::uint32_t> nodes,
                                    double seconds, std::span<const double> carried);

}  // namespace spillway::planner
