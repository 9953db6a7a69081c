#include "plan_assembly.h"
#include "swaps_of_all.h"
#include "touch_intervals.h"

namespace spillway::planner {
namespace {

// A thousand sets: some milliseconds.
constexpr std::size_t kFewIntervals = 10;

StepPlan make_offload_only(const StepTape& tape, const SwapLimits& limits,
                           const StopCheck& should_stop) {
  StepPlan plan = plan_with_replays(tape, {}, limits, should_stop);
  if (find_intervals(tape).intervals.size() > kFewIntervals) return plan;
  PlanAssembly assembly(tape, {}, limits);
  SwapsOfAll best = best_of_all_swaps({&assembly, 1}, limits, should_stop);
  if (!is_better(best.plan.estimate, plan.swaps.estimate)) return plan;
  return std::move(assembly).finish(std::move(best.plan));
}

}  // namespace

// The problem is strongly NP-hard (Beaumont, Eyraud-Dubois, Shilova, Euro-Par 2020): the best of
// all sets of whole swaps for steps with few stretches between uses, near to it for others.
extern const Strategy kOffloadOnly{"offload-only",
                                   "our swaps, nothing is recomputed; the best of all whole swaps "
                                   "for small steps",
                                   "", make_offload_only, /*is_start=*/false};

}  // namespace spillway::planner
