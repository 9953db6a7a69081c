#pragma once

#include "spillway/planner/step_plan.h"

namespace spillway::planner {

/// The quickest of all plans that keep, swap whole or recompute, for every stretch between two uses
/// of a value, in every combination: then the best moments for the best of them, by the event
/// model, of each swap and of each pair of swaps, but not of all swaps at once. For steps of about
/// ten operators that do not fit; throws PlanError where there is too much to try.
StepPlan exhaustive_plan(const StepTape& tape, const SwapLimits& limits);

}  // namespace spillway::planner
