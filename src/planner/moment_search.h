#pragma once

#include <vector>

#include "plan_assembly.h"

namespace spillway::planner {

/// The best plan that moves these pages, judged: all styles of moments first, then swap by swap
/// every operator at which its write-out and its fetch could start, until nothing helps. For tiny
/// steps.
SwapPlan with_best_moments(const PlanAssembly& assembly, const std::vector<std::uint32_t>& pages);

}  // namespace spillway::planner
