#include "spillway/planner/step_plan.h"
#include "step_search.h"
#include "swap_search.h"
#include "touch_intervals.h"

namespace spillway::planner {

namespace {

SwapPlan best_swaps(const StepTape& tape, const SwapLimits& limits, const StopCheck& should_stop) {
  if (!tape.ops.empty())
    return SwapSearch(tape, limits).best(limits.refinement_ops, should_stop).plan;
  SwapPlan plan;
  plan.write_outs.first = plan.fetches.first = plan.births.first = {0};
  plan.is_feasible = true;
  return plan;
}

}  // namespace

PerOp drops_per_op(const StepTape& tape, const RewrittenTape& steps) {
  const std::vector<OpIndex> at = places_in(steps);
  // A presence that ends before the value itself does.
  std::vector<OpIndex> ends;
  for (ValueIndex i = 0; i < steps.tape.values.size(); ++i) {
    const OpIndex end = steps.tape.values[i].death;
    const OpIndex death = tape.values[steps.value_of[i]].death;
    const bool is_drop =
        end != profile::kSurvives && (death == profile::kSurvives || end < at[death]);
    ends.push_back(is_drop ? end : kNoOp);
  }
  PerOp drops = group_by_op(ends, steps.tape.ops.size());
  for (std::uint32_t& entry : drops.entries) entry = steps.value_of[entry];
  return drops;
}

StepPlan plan_with_replays(const StepTape& tape, std::vector<Replay> replays,
                           const SwapLimits& limits, const StopCheck& should_stop) {
  check(limits);
  profile::check(tape);
  StepPlan plan;
  plan.steps = rewrite_tape(tape, replays);
  plan.replay_seconds = replay_seconds(tape, replays);
  plan.replays = std::move(replays);
  plan.swaps = best_swaps(plan.steps.tape, limits, should_stop);
  return plan;
}

StepPlan plan_step(const StepTape& tape, const SwapLimits& limits, const PlanEffort& effort) {
  check(limits);
  profile::check(tape);
  if (tape.ops.empty()) {
    StepPlan plan = plan_with_replays(tape, {}, limits);
    plan.strategy = "spillway";
    if (effort.on_better) effort.on_better(plan);
    return plan;
  }
  return StepSearch(tape, limits, effort).run();
}

}  // namespace spillway::planner
