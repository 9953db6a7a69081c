#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan_assembly.h"

namespace spillway::planner {

/// The best plan that moves these pages, evaluated, by the style of moments.
SwapPlan with_best_style(const PlanAssembly& assembly, const std::vector<std::uint32_t>& pages);
/// The same with that moment for write-outs.
SwapPlan with_best_style(const PlanAssembly& assembly, const std::vector<std::uint32_t>& pages,
                         WriteOutMoment moment);

/// A evaluated plan and what other sets of values lead to, best first: beginning at the plan's,
/// whole intervals stay or leave, one by one, then two by two, then three by three, each set by the
/// style of moments that suits it, until no set is better or so many were tried. For tiny steps.
std::vector<SwapPlan> best_sets(const PlanAssembly& assembly, SwapPlan plan,
                                std::uint32_t budget_pages, std::size_t most_sets,
                                std::size_t most_plans);

enum class MomentEffort : std::uint8_t {
  kSingles,  ///< One swap at a time.
  kPairs,    ///< Then two at a time, in all combinations.
};

/// A evaluated plan, made better with every operator at which write-outs and fetches could start,
/// until nothing helps. For tiny steps.
SwapPlan with_best_moments(const PlanAssembly& assembly, SwapPlan plan,
                           MomentEffort effort = MomentEffort::kSingles);

/// Whether two plans for one tape take as long and swap the same at the same moments. Sets that
/// differ in what cannot leave lead to many such plans.
bool has_same_moments(const SwapPlan& a, const SwapPlan& b);

}  // namespace spillway::planner
