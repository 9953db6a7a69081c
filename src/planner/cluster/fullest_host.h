#pragma once

#include <cstdint>
#include <span>

#include "spillway/planner/cluster/job_simulation.h"

namespace spillway::planner {

/// As `JobTiming::host_memory`. Devices are by rank, one pipeline after the other.
Bytes fullest_host(const Job& job, const ClusterLinks& links,
                   std::span<const std::uint32_t> devices);

}  // namespace spillway::planner
