#pragma once

#include <functional>
#include <optional>

#include "bottleneck_search.h"

namespace spillway::planner {

struct BalancedCuts {
  BottleneckCuts best;
  bool is_exact = true;
};

/// Cuts whose costs, sorted from the worst, are the least in the order of dictionaries.
std::optional<BalancedCuts> balanced_cuts(const SegmentGoal& goal, const CutRange& range);

/// Steps of the table up to which nobody waits.
inline constexpr double kMostTableSteps = 2e7;
/// Returns how many steps it takes at most to fill the table.
double table_steps(const CutRange& range);

/// The two ways to find them: exact, for any cost at all, in `table_steps`; or keeping the worst
/// stage and solving both its sides anew, which `solve` does for as long as it finds cuts of all.
std::optional<BottleneckCuts> balanced_by_table(const SegmentGoal& goal, const CutRange& range);
using SolveRange = std::function<std::optional<BottleneckCuts>(const CutRange&)>;
std::optional<BottleneckCuts> balanced_by_freezing(const SegmentGoal& goal, const CutRange& range,
                                                   const SolveRange& solve);

}  // namespace spillway::planner
