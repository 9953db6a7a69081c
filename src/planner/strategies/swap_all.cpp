#include <algorithm>

#include "plan_assembly.h"
#include "spillway/planner/forward_stash.h"

namespace spillway::planner {
namespace {

/// Every value that forward leaves for backward goes when forward has touched it last, and comes
/// back while the operator of backward runs that needs the ones before it. Unlike vDNN, no operator
/// waits for transfers that it does not need. What else does not fit is paged on demand.
StepPlan make_swap_all(const StepTape& tape, const SwapLimits& limits,
                       const StopCheck& /*should_stop*/) {
  const ForwardStash stash = find_stash(tape);
  std::vector<OpIndex> needs;
  for (const StashedValue& value : stash.values) needs.push_back(value.next);
  std::sort(needs.begin(), needs.end());
  std::vector<PlannedSwap> swaps;
  for (const StashedValue& value : stash.values) {
    // Needed by the very next operator: it could only leave to be waited for.
    if (value.next == value.after + 1) continue;
    const auto need = std::lower_bound(needs.begin(), needs.end(), value.next);
    // The first need of backward has none before it.
    const OpIndex one_ahead = need == needs.begin() ? value.next - 1 : *(need - 1);
    PlannedSwap swap;
    swap.value = swap.fetch_value = swap.needed_value = value.value;
    swap.pages = value.pages;
    swap.leave = swap.last_touch = value.after;
    // A need of another value may lie before this one has left.
    swap.fetch = std::max(one_ahead, value.after + 1);
    swap.needed = value.next;
    swap.out_ops = swap.fetch - swap.leave - 1;
    swaps.push_back(swap);
  }
  PlanAssembly assembly(tape, {}, limits);
  SwapPlan moved = assembly.moved(std::move(swaps));
  return std::move(assembly).finish(std::move(moved));
}

}  // namespace

extern const Strategy kSwapAll{"swap-all",
                               "all activations leave after forward and return one need ahead",
                               "vDNN: Rhu et al., MICRO 2016, arXiv 1602.08124", make_swap_all};

}  // namespace spillway::planner
