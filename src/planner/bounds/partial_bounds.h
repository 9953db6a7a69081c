#pragma once

#include <cstdint>
#include <vector>

#include "recompute_costs.h"
#include "spillway/planner/step_bound.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// Pages that each operator cannot do without: what it uses and the peak inside.
std::vector<std::uint32_t> needs_of_ops(const StepTape& tape);

/// Least time for so many pages: one direction after the other, or side by side as long as both
/// have something to do.
double transfer_seconds(double written_pages, double read_pages, const SwapLimits& limits);

/// The bound by disjoint windows. `needs` as `needs_of_ops` tells them. bounds.md has the proof.
StepBound bound_windows(const StepTape& tape, const std::vector<std::uint32_t>& needs,
                        const SwapLimits& limits, const WalkCosts& costs);

/// The bound by a linear program: pages as a fluid that leaves, is dropped, comes back and is
/// recomputed between up to 128 moments of the step. bounds.md has the proof.
StepBound bound_fluid(const StepTape& tape, const std::vector<std::uint32_t>& needs,
                      const SwapLimits& limits, const BoundOptions& options);

}  // namespace spillway::planner
