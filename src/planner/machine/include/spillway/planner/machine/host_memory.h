#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/job/job_plan.h"

namespace spillway::planner {

/// What hosts hold for the ranks of a plan, of which so many neighbouring ones are on each: the sum
/// of what each of them has swapped at its most, which need not be at the same moment. By host;
/// ends where pipelines begin to lie on hosts as the first one does. `ranks_per_host` is at
/// least 1.
std::vector<Bytes> host_peaks(const JobPlan& plan, std::uint32_t ranks_per_host);

/// The most of them.
Bytes fullest_host(const JobPlan& plan, std::uint32_t ranks_per_host);

}  // namespace spillway::planner
