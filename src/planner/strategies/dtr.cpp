#include "online_eviction.h"
#include "plan_assembly.h"
#include "strategies/strategy_list.h"

namespace spillway::planner {
namespace {

/// What dynamic rematerialization would have run again, written down. Values that the program frees
/// are ingredients that come back for a moment. What then does not fit is paged on demand.
StepPlan plan_dtr(const StepTape& tape, const SwapLimits& limits) {
  if (auto plan = plan_if_it_fits(kDtr, tape, limits)) return *plan;
  const Recomputation all(tape);
  PlanAssembly assembly(tape, OnlineEviction(tape, all, limits.budget_pages).run(), limits);
  SwapPlan paged = assembly.paged();
  return std::move(assembly).finish(kDtr, std::move(paged));
}

}  // namespace

const Strategy kDtr{"dtr", "recomputes only, evicts on line what is cheap, big and stale",
                    "Kirisame et al., Dynamic tensor rematerialization, ICLR 2021, arXiv "
                    "2006.09616 (h_DTR-eq)",
                    plan_dtr};

}  // namespace spillway::planner
