#include "plan_assembly.h"

namespace spillway::planner {
namespace {

/// No plan: the event model reads on demand and evicts what is used farthest in the future, which
/// is the fewest misses for pages of equal size that need no write-back.
StepPlan make_belady(const StepTape& tape, const SwapLimits& limits,
                     const StopCheck& /*should_stop*/) {
  PlanAssembly assembly(tape, {}, limits);
  SwapPlan paged = assembly.paged();
  return std::move(assembly).finish(std::move(paged));
}

}  // namespace

extern const Strategy kBelady{
    "belady", "reads on demand, evicts what is used farthest in the future",
    "Belady, A study of replacement algorithms for a virtual-storage computer, "
    "IBM Systems Journal 5(2), 1966",
    make_belady};

}  // namespace spillway::planner
