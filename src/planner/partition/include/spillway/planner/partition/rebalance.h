#pragma once

#include <vector>

#include "spillway/planner/partition/cut_solvers.h"

namespace spillway::planner {

/// Cuts that are quicker than others, and near them.
struct NearCuts {
  Cuts cuts;
  double seconds = 0.0;  ///< Per micro-batch, of the slowest stage.
};

/// Returns what moves of layers between neighbours can reach from `now`, the nearest choice first:
/// each moves the fewest bytes over borders of all that reach its time or a better one, exactly;
/// where there are more than 16 choices, some between them are left out. The list is empty where
/// nothing is quicker than the cuts as they are. Throws PlanError for cuts that are none.
std::vector<NearCuts> rebalance_choices(const SegmentCosts& measured, const Cuts& now);

}  // namespace spillway::planner
