#pragma once

#include <cstddef>
#include <span>

#include "plan_assembly.h"

namespace spillway::planner {

/// What moves and when, for one of several ways to recompute.
struct SwapsOfAll {
  std::size_t assembly = 0;  ///< Its index.
  SwapPlan plan;             ///< Judged.
};

/// The quickest of all plans that swap whole intervals of these assemblies, of which there is one
/// at least: every set of intervals, then the best moments for the best of them, by the event
/// model: of each swap and of each pair of swaps, but not of all swaps at once. Takes time with two
/// to the power of the intervals. When told to stop, the best of what was tried by then.
SwapsOfAll best_of_all_swaps(std::span<const PlanAssembly> assemblies, const SwapLimits& limits,
                             const StopCheck& should_stop);

}  // namespace spillway::planner
