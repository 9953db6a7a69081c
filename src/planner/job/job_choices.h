#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/job/job_plan.h"

namespace spillway::planner {

/// From the largest one down.
std::vector<std::uint32_t> divisors_of(std::uint32_t number);

/// Passes of micro-batches through stages in the action lists of a choice; none where it has more
/// stages than there are layers, and so no action lists.
std::uint64_t passes_of(const JobRequest& request, const JobChoice& choice);

}  // namespace spillway::planner
