#include <optional>

#include "online_eviction.h"
#include "plan_assembly.h"

namespace spillway::planner {
namespace {

/// What dynamic rematerialization would have run again, written down; what then does not fit is
/// paged on demand. A value that the program has freed and that is recomputed for others stays
/// until it is evicted, as in the authors' simulator with eager eviction. That costs little where
/// many need it, and all the room where few do, so the better of this and of letting it go at once.
StepPlan make_dtr(const StepTape& tape, const SwapLimits& limits, const StopCheck& should_stop) {
  const Recomputation all(tape);
  std::optional<PlanAssembly> best;
  SwapPlan best_paged;
  for (const FreedValues freed : {FreedValues::kStay, FreedValues::kLeave}) {
    // Not before there is a plan: one is promised, however early the stop comes.
    if (best && is_told(should_stop)) break;
    PlanAssembly assembly(tape, evicted_on_line(tape, all, limits.budget_pages, freed, should_stop),
                          limits);
    SwapPlan paged = assembly.paged();
    paged.estimate = assembly.estimate(paged);
    if (best && !is_better(paged.estimate, best_paged.estimate)) continue;
    best.emplace(std::move(assembly));
    best_paged = std::move(paged);
  }
  return std::move(*best).finish(std::move(best_paged));
}

}  // namespace

extern const Strategy kDtr{
    "dtr", "recomputes what it evicts on line (cheap, big, stale), pages the rest on demand",
    "Kirisame et al., Dynamic tensor rematerialization, ICLR 2021, arXiv "
    "2006.09616 (h_DTR-eq)",
    make_dtr};

}  // namespace spillway::planner
