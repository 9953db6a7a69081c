#include "plan_assembly.h"
#include "strategies/strategy_list.h"

namespace spillway::planner {
namespace {

/// No plan: the event model reads on demand and evicts what is used farthest in the future, which
/// is the fewest misses for pages of equal size that need no write-back.
StepPlan plan_belady(const StepTape& tape, const SwapLimits& limits) {
  if (auto plan = plan_if_it_fits(kBelady, tape, limits)) return *plan;
  PlanAssembly assembly(tape, {}, limits);
  SwapPlan paged = assembly.paged();
  return std::move(assembly).finish(kBelady, std::move(paged));
}

}  // namespace

const Strategy kBelady{"belady", "reads on demand, evicts what is used farthest in the future",
                       "Belady, A study of replacement algorithms for a virtual-storage computer, "
                       "IBM Systems Journal 5(2), 1966",
                       plan_belady};

}  // namespace spillway::planner
