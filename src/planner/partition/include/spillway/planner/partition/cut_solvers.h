#pragma once

#include <optional>
#include <vector>

#include "spillway/planner/partition/segment_costs.h"

namespace spillway::planner {

/// Units before each stage and behind the last one: 0, ..., `units()`. No stage is empty.
using Cuts = std::vector<std::uint32_t>;

struct SolvedCuts {
  Cuts cuts;
  /// Cost of the worst stage: seconds per micro-batch, or bytes. Recomputation in fractions of
  /// layers.
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
std::optional<SolvedCuts> balanced_memory_cuts(
    const SegmentCosts& costs, double seconds,
    MemoryReduction memory_reduction = MemoryReduction::kSwapAndRecompute);

/// Why nothing fits, for users: throws a PlanError with the least memory of the fullest stage that
/// any cuts reach when time does not matter, and what to do.
[[noreturn]] void refuse_cuts(const SegmentCosts& costs, MemoryReduction memory_reduction =
                                                             MemoryReduction::kSwapAndRecompute);

}  // namespace spillway::planner
