#include "spillway/planner/strategies.h"

namespace spillway::planner {

static StepPlan make_offload_only(const StepTape& tape, const SwapLimits& limits,
                                  const StopCheck& should_stop) {
  return plan_with_replays(tape, {}, limits, should_stop);
}

// The best set is strongly NP-hard to find (Beaumont, Eyraud-Dubois, Shilova, Euro-Par 2020), so no
// claim is made beyond what the event model says of this one.
extern const Strategy kOffloadOnly{"offload-only", "our swaps, nothing is recomputed", "",
                                   make_offload_only, /*is_start=*/false};

}  // namespace spillway::planner
