#pragma once

#include <optional>
#include <vector>

#include "set_costs.h"

namespace spillway::planner {

/// Downsets before each stage and behind the last one, each inside the next.
struct DownsetCuts {
  std::vector<std::uint32_t> sets;
  double seconds = 0.0;  ///< Of the slowest stage.
};

struct DownsetSearch {
  std::optional<DownsetCuts> best;  ///< Nothing: none of these downsets is quicker than `below`.
  bool is_finished = true;  ///< False: the effort was spent before, and the best is unknown.
};

/// The least time of the slowest stage over all ways from the empty downset to the whole graph, no
/// stage empty, where that is below so many seconds: the dynamic program of Tarnawski et al.
/// ("Efficient Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020), with times
/// after swaps and recomputation, and without what can no more become quicker than `below`.
/// `most_steps`: how many pairs of downsets are compared; some nanoseconds each, a pair whose
/// memory is looked at counts for many.
DownsetSearch least_time_downsets(const SetCosts& costs, const Downsets& sets, double below,
                                  std::uint64_t most_steps);

}  // namespace spillway::planner
