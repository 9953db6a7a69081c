#pragma once

#include <optional>

#include "bottleneck_search.h"

namespace spillway::planner {

struct BalancedCuts {
  BottleneckCuts best;
  bool is_exact = true;
};

/// Cuts whose costs, sorted from the worst, are the least in the order of dictionaries.
std::optional<BalancedCuts> balanced_cuts(const SegmentGoal& goal, const CutRange& range);

/// The two ways to find them: exact in units^2 * stages^2, or keeping the worst stage and balancing
/// both its sides anew.
std::optional<BottleneckCuts> balanced_by_table(const SegmentGoal& goal, const CutRange& range);
std::optional<BottleneckCuts> balanced_by_freezing(const SegmentGoal& goal, const CutRange& range);

}  // namespace spillway::planner
