#include "online_eviction.h"
#include "plan_assembly.h"

namespace spillway::planner {
namespace {

/// What dynamic rematerialization would have run again, written down. Values that the program frees
/// are ingredients that come back for a moment. What then does not fit is paged on demand.
StepPlan make_dtr(const StepTape& tape, const SwapLimits& limits, const StopCheck& should_stop) {
  const Recomputation all(tape);
  PlanAssembly assembly(tape, OnlineEviction(tape, all, limits.budget_pages, should_stop).run(),
                        limits);
  SwapPlan paged = assembly.paged();
  return std::move(assembly).finish(std::move(paged));
}

}  // namespace

extern const Strategy kDtr{"dtr", "recomputes only, evicts on line what is cheap, big and stale",
                           "Kirisame et al., Dynamic tensor rematerialization, ICLR 2021, arXiv "
                           "2006.09616 (h_DTR-eq)",
                           make_dtr};

}  // namespace spillway::planner
