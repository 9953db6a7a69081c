#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/step_bound.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// The bound by a linear program: pages as a fluid that leaves, is dropped, comes back and is
/// recomputed between up to 128 moments of the step. bounds.md has the proof.
StepBound bound_fluid(const StepTape& tape, const std::vector<std::uint32_t>& needs,
                      const SwapLimits& limits, const BoundOptions& options);

}  // namespace spillway::planner
