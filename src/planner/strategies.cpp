#include "spillway/planner/strategies.h"

#include <array>

#include "plan_assembly.h"
#include "spillway/base/named_values.h"
#include "strategies/strategy_list.h"

namespace spillway::planner {
namespace {

StepPlan plan_ours(const StepTape& tape, const SwapLimits& limits);

constexpr Strategy kOurs{"spillway", "keep, swap and recompute decided together (the default)", "",
                         plan_ours};

StepPlan plan_ours(const StepTape& tape, const SwapLimits& limits) {
  if (auto plan = plan_if_it_fits(kOurs, tape, limits)) return *plan;
  return plan_step(tape, limits);
}

}  // namespace

std::span<const Strategy> strategies() {
  static const std::array all{kOurs,  kDemand, kBelady,   kSwapAll, kOffloadOnly, kCheckpointSqrt,
                              kRotor, kDtr,    kCapuchin, kKarma,   kExhaustive};
  return all;
}

const Strategy& strategy_named(std::string_view name) {
  std::vector<Named<const Strategy*>> named;
  for (const Strategy& strategy : strategies()) named.push_back({strategy.name, &strategy});
  return *value_named(name, named, "strategy");
}

}  // namespace spillway::planner
