#pragma once

#include <vector>

#include "plan_assembly.h"

namespace spillway::planner {

/// The best plan that moves these pages, judged, by the style of moments.
SwapPlan with_best_style(const PlanAssembly& assembly, const std::vector<std::uint32_t>& pages);

/// A judged plan, made better swap by swap with every operator at which its write-out and its fetch
/// could start, until nothing helps. For tiny steps.
SwapPlan with_best_moments(const PlanAssembly& assembly, SwapPlan plan);

}  // namespace spillway::planner
