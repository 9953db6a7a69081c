#include "swap_search.h"

namespace spillway::planner {

SwapPlan find_swaps(const StepTape& tape, const SwapLimits& limits, const StopCheck& should_stop) {
  check(limits);
  profile::check(tape);
  if (tape.ops.empty()) {
    SwapPlan plan;
    plan.write_outs.first = plan.fetches.first = plan.births.first = {0};
    plan.is_feasible = true;
    return plan;
  }
  return SwapSearch(tape, limits).best(limits.refinement_ops, should_stop).plan;
}

SwapPlan plan_swaps(const StepTape& tape, const SwapLimits& limits) {
  SwapPlan plan = find_swaps(tape, limits);
  if (!tape.ops.empty()) plan.bound = bound_step(tape, limits);
  return plan;
}

}  // namespace spillway::planner
