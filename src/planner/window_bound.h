#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// Pages that each operator cannot do without: what it uses and the peak inside.
std::vector<std::uint32_t> needs_of_ops(const StepTape& tape);

/// Least time for so many pages: one direction after the other, or side by side as long as both
/// have something to do.
double transfer_seconds(std::uint64_t written_pages, std::uint64_t read_pages,
                        const SwapLimits& limits);

/// The bound by disjoint windows: fills pages and time. `needs` as `needs_of_ops` tells them.
/// bounds.md has the proof.
StepBound bound_windows(const StepTape& tape, const std::vector<std::uint32_t>& needs,
                        const SwapLimits& limits);

}  // namespace spillway::planner
