#pragma once

#include <utility>

#include "spillway/planner/step_bound.h"
#include "spillway/planner/step_plan.h"

namespace spillway::planner {

/// The bound of all plans that only swap.
inline StepBound bound_of_swaps(StepTape tape, const SwapLimits& limits) {
  for (auto& op : tape.ops) op.is_replayable = false;
  return bound_plan(tape, limits);
}

/// A plan that only swaps, and what it is held against.
struct SwapsAlone : SwapPlan {
  StepBound bound;
};

inline SwapsAlone plan_swaps(const StepTape& tape, const SwapLimits& limits) {
  return {plan_with_replays(tape, {}, limits).swaps, bound_of_swaps(tape, limits)};
}

}  // namespace spillway::planner
