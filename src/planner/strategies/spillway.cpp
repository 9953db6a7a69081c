#include "spillway/planner/strategies.h"

namespace spillway::planner {
namespace {

StepPlan make_spillway(const StepTape& tape, const SwapLimits& limits,
                       const StopCheck& should_stop) {
  return plan_step(tape, limits, {should_stop, {}});
}

}  // namespace

extern const Strategy kSpillway{"spillway",
                                "keep, swap and recompute decided together (the default)", "",
                                make_spillway, /*is_start=*/false};

}  // namespace spillway::planner
