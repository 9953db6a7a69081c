#include "spillway/planner/step_plan.h"

namespace spillway::planner {

StepPlan plan_with_replays(const StepTape& tape, std::vector<Replay> replays,
                           const SwapLimits& limits) {
  StepPlan plan;
  plan.steps = rewrite_tape(tape, replays);
  plan.replay_seconds = replay_seconds(tape, replays);
  plan.replays = std::move(replays);
  plan.swaps = plan_swaps(plan.steps.tape, limits);
  plan.bound = bound_step(tape, limits);
  return plan;
}

StepPlan plan_step(const StepTape& tape, const SwapLimits& limits, const PlanEffort& effort) {
  StepPlan plan = plan_with_replays(tape, {}, limits);
  plan.strategy = "spillway";
  if (effort.on_better) effort.on_better(plan);
  return plan;
}

}  // namespace spillway::planner
