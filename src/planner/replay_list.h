#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "online_eviction.h"
#include "spillway/planner/recomputation.h"
#include "swap_search.h"

namespace spillway::planner {

/// A plan as the list of what runs again, whichever drops led to it, and the swaps beside it.
struct ReplayList {
  std::vector<Replay> replays;
  RewrittenTape steps;
  StyledSwaps swaps;

  const StepEstimate& estimate() const { return swaps.plan.estimate; }
};

/// What an on-line eviction runs again that has so many pages, and swaps of this style for what
/// does not fit into the budget then.
ReplayList evict_on_line(const StepTape& tape, const Recomputation& all, const SwapLimits& limits,
                         std::uint32_t pages, const SwapStyle& style, const StopCheck& should_stop);

/// Takes replays out one by one, as long as that makes the plan better: what one of them brought
/// back stays from its use before on, or is swapped. Before each try it says how many operators
/// that simulates, and ends when the answer is no.
ReplayList without_needless(const StepTape& tape, const SwapLimits& limits, ReplayList list,
                            const std::function<bool(std::size_t ops)>& may_try);

}  // namespace spillway::planner
