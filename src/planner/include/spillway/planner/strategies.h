#pragma once

#include <span>
#include <string_view>

#include "spillway/planner/step_plan.h"

namespace spillway::planner {

/// A way to plan a step. All are judged by the same event model and bound.
struct Strategy {
  /// The plan for a step that does not fit into the budget, judged; without name and bound. Ends
  /// soon after it is told to, with what it has so far.
  using Make = StepPlan (*)(const StepTape& tape, const SwapLimits& limits,
                            const StopCheck& should_stop);

  /// The plan that it makes of a repeating step; of one that fits, the plan that does nothing. Ends
  /// early when `should_stop` says so. Throws ConfigError for senseless limits, PlanError for a
  /// tape that contradicts itself or that this strategy cannot plan, with what to do instead. Any
  /// number of threads may ask at the same time.
  StepPlan plan(const StepTape& tape, const SwapLimits& limits,
                const StopCheck& should_stop = {}) const;

  std::string_view name;
  std::string_view summary;  ///< One line for users.
  std::string_view source;   ///< Paper or repository that it follows; empty for ours.
  Make make;
  bool is_start = true;  ///< Our own search tries it, too, so that it is never slower.
};

/// All of them, ours first, the others by name.
std::span<const Strategy> strategies();

/// Throws ConfigError with the nearest name.
const Strategy& strategy_named(std::string_view name);

}  // namespace spillway::planner
