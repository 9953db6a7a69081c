#include "plan_assembly.h"
#include "strategies/strategy_list.h"

namespace spillway::planner {
namespace {

StepPlan plan_offload_only(const StepTape& tape, const SwapLimits& limits) {
  if (auto fitting = plan_if_it_fits(kOffloadOnly, tape, limits)) return *fitting;
  StepPlan plan = plan_with_replays(tape, {}, limits);
  plan.strategy = kOffloadOnly.name;
  return plan;
}

}  // namespace

// The problem is strongly NP-hard (Beaumont, Eyraud-Dubois, Shilova, Euro-Par 2020): no claim that
// this is the optimum, which tests come near to on tiny steps.
const Strategy kOffloadOnly{"offload-only", "our swaps, nothing is recomputed", "",
                            plan_offload_only};

}  // namespace spillway::planner
