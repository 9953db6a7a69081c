#pragma once

#include <optional>
#include <vector>

#include "spillway/planner/partition/segment_costs.h"

namespace spillway::partition {

/// Units before each stage and behind the last one: 0, ..., `units()`. No stage is empty.
using Cuts = std::vector<std::uint32_t>;

/// Cuts, and what the worst of their stages costs: seconds per micro-batch or bytes, with
/// recomputation in fractions of layers, or whatever a published partitioner counts.
struct SolvedCuts {
  Cuts cuts;
  double worst = 0.0;
  bool is_exact = true;
};

/// The cuts with the least time per micro-batch on the slowest stage, all stages within their
/// devices after the best swaps and recomputation. Exact. Nothing where no cuts fit.
std::optional<SolvedCuts> least_time_cuts(
    const SegmentCosts& costs,
    MemoryReduction memory_reduction = MemoryReduction::kSwapAndRecompute);

/// The cuts with the least memory on the fullest stage, after the best swaps and recomputation that
/// leave every stage within so many seconds per micro-batch. Exact like that. Nothing where no cuts
/// keep to the time and the devices.
std::optional<SolvedCuts> least_memory_cuts(
    const SegmentCosts& costs, double seconds,
    MemoryReduction memory_reduction = MemoryReduction::kSwapAndRecompute);

/// Returns cuts with the same worst stage, whose second worst stage is as little as it can be then,
/// and so is the third, and so on. They are exact (`is_exact`) for small problems: a dynamic
/// program over sorted costs while units^2 * stages^2 is at most 20 million. Beyond, the worst
/// stage is kept as it is and both sides are balanced anew, as CAPSlog does, which is exact where
/// no two segments tie.
std::optional<SolvedCuts> balanced_time_cuts(
    const SegmentCosts& costs,
    MemoryReduction memory_reduction = MemoryReduction::kSwapAndRecompute);

/// Returns what moves of layers between neighbours can reach from `now`, the nearest choice first:
/// each moves the fewest bytes over borders of all that reach its time or a better one, exactly;
/// where there are more than 16 choices, some between them are left out. The list is empty where
/// nothing is quicker than the cuts as they are. Throws PlanError for cuts that are none.
std::vector<SolvedCuts> rebalance_choices(const SegmentCosts& measured, const Cuts& now);

}  // namespace spillway::partition
