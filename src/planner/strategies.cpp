#include "spillway/planner/strategies.h"

#include "spillway/base/named_values.h"

namespace spillway::planner {

StepPlan Strategy::plan(const StepTape& tape, const SwapLimits& limits,
                        const StopCheck& should_stop) const {
  check(limits);
  profile::check(tape);
  // No strategy does anything where nothing has to, so none has to know that case.
  const bool fits = live_peak(tape) <= limits.budget_pages;
  StepPlan plan = fits ? plan_with_replays(tape, {}, limits) : make(tape, limits, should_stop);
  plan.strategy = name;
  return plan;
}

const Strategy& strategy_named(std::string_view name) {
  std::vector<Named<const Strategy*>> named;
  for (const Strategy& strategy : strategies()) named.push_back({strategy.name, &strategy});
  return *value_named(name, named, "strategy");
}

}  // namespace spillway::planner
