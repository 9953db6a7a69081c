#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "segment_goal.h"
#include "spillway/planner/partition/cut_solvers.h"

namespace spillway::partition {

/// The cuts whose worst segment costs least, no stage empty; nothing where every way is impossible.
/// Halves the range of costs, and moves its ends to costs that segments really have, so that it
/// ends with the exact one after some forty probes. Probes fill from the left where that is exact
/// or already decides, and else keep the reachable cuts.
std::optional<SolvedCuts> least_bottleneck(const SegmentGoal& goal, const CutRange& range);

/// Cost of the worst segment of these cuts; infinite where one is impossible.
double bottleneck_of(const SegmentGoal& goal, const CutRange& range, const Cuts& cuts);

/// Cuts whose costs, sorted from the worst, are the least in the order of dictionaries.
std::optional<SolvedCuts> balanced_cuts(const SegmentGoal& goal, const CutRange& range);

/// Steps of the table up to which nobody waits.
inline constexpr double kMostTableSteps = 2e7;
/// Returns how many steps it takes at most to fill the table.
double table_steps(const CutRange& range);

/// The two ways to find them: exact, for any cost at all, in `table_steps`; or keeping the worst
/// stage and solving both its sides anew, which `solve` does for as long as it finds cuts of all.
std::optional<SolvedCuts> balanced_by_table(const SegmentGoal& goal, const CutRange& range);
using SolveRange = std::function<std::optional<SolvedCuts>(const CutRange&)>;
std::optional<SolvedCuts> balanced_by_freezing(const SegmentGoal& goal, const CutRange& range,
                                               const SolveRange& solve);

}  // namespace spillway::partition
