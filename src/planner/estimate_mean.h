#pragma once

#include <span>

#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// Mean over several repetitions; peaks are the largest. Complete if all are.
StepEstimate mean_of(std::span<const StepEstimate> periods);

}  // namespace spillway::planner
