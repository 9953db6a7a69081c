#include "plan_assembly.h"

namespace spillway::planner {
namespace {

StepPlan make_offload_only(const StepTape& tape, const SwapLimits& limits,
                           const StopCheck& should_stop) {
  return plan_with_replays(tape, {}, limits, should_stop);
}

}  // namespace

// The problem is strongly NP-hard (Beaumont, Eyraud-Dubois, Shilova, Euro-Par 2020): no claim that
// this is the optimum, which tests come near to on tiny steps.
extern const Strategy kOffloadOnly{"offload-only", "our swaps, nothing is recomputed", "",
                                   make_offload_only, /*is_start=*/false};

}  // namespace spillway::planner
