#pragma once

#include <span>

#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// What several repetitions take on average; peaks are the largest. Complete if all are.
StepEstimate mean_of(std::span<const StepEstimate> periods);

}  // namespace spillway::planner
