#pragma once

#include <vector>

#include "segment_goal.h"

namespace spillway::partition {

/// How far a filling from the left comes.
struct GreedyCuts {
  std::vector<std::uint32_t> cuts;  ///< Stages + 1; no cuts that cost at most as much lie behind.
  bool is_complete = false;         ///< All units have a stage.
  bool has_empty = false;           ///< Some stage could not take its first unit.
  double next_cost = kNever;        ///< Below it the filling comes no farther.
};

/// The cuts between which the filling is known to end, from fillings with less and with more.
struct CutWindows {
  std::vector<std::uint32_t> least, most;
};

/// Gives each stage in turn as many units as cost at most `at`, leaving one for each stage behind.
/// Exact for costs that do not fall when a segment grows: whoever cuts farther left only leaves
/// more to the rest. Of other costs complete cuts hold, and nothing else follows. Probes by
/// doubling steps around the stage before's length, and inside `windows`.
GreedyCuts greedy_cuts(const SegmentGoal& goal, const CutRange& range, Borders borders, double at,
                       const CutWindows* windows = nullptr);

/// Fills from the right at the lower bound of costs: no cuts that cost at most as much lie
/// before its cuts. They are complete when they get to the first unit.
GreedyCuts earliest_cuts(const SegmentGoal& goal, const CutRange& range, double at);

}  // namespace spillway::partition
