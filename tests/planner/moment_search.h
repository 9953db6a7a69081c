#pragma once

#include <cstdint>
#include <vector>

#include "plan_assembly.h"

namespace spillway::planner {

/// The best plan that moves these pages, evaluated, by the style of moments.
SwapPlan with_best_style(const PlanAssembly& assembly, const std::vector<std::uint32_t>& pages,
                         WriteOutMoment moment);

enum class MomentEffort : std::uint8_t {
  kSingles,  ///< One swap at a time.
  kPairs,    ///< Then two at a time, in all combinations.
};

/// An evaluated plan, made better with every operator at which write-outs and fetches could start,
/// until nothing helps. Takes the more time the more swaps and operators there are: for tiny steps.
SwapPlan with_best_moments(const PlanAssembly& assembly, SwapPlan plan,
                           MomentEffort effort = MomentEffort::kSingles);

/// Whether two plans for one tape take as long and swap the same at the same moments. Sets that
/// differ in what cannot leave lead to many such plans.
bool has_same_moments(const SwapPlan& a, const SwapPlan& b);

}  // namespace spillway::planner
