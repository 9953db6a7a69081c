#pragma once

#include <cstdint>
#include <span>

#include "spillway/planner/cluster/job_simulation.h"

namespace spillway::planner {

/// Returns what `JobTiming::host_memory` tells. Devices are by rank, one pipeline after the other.
Bytes fullest_host(const Job& job, const ClusterLinks& links,
                   std::span<const std::uint32_t> devices);

}  // namespace spillway::planner
