#pragma once

#include <span>
#include <string_view>

#include "spillway/planner/step_plan.h"

namespace spillway::planner {

/// Limit of `Strategy::summary`: a line of the table of all strategies holds no more.
inline constexpr std::size_t kMostSummaryLetters = 80;

/// A way to plan a step. All are evaluated by the same event model.
struct Strategy {
  /// The plan for a step that does not fit into the budget, evaluated; without name. Ends soon
  /// after it is told to, with what it has so far; one that is quick for any step need not ask. May
  /// refuse by a PlanError that names another strategy, but not a short chain.
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
  /// Our own search tries it, too, and is not slower then: unless it is told to stop before, or
  /// nobody may stop it and the step has more than 10,000 operators.
  bool is_start = true;
};

/// All of them, ours first, the others by name.
std::span<const Strategy> strategies();

/// Throws ConfigError with the nearest name.
const Strategy& strategy_named(std::string_view name);

}  // namespace spillway::planner
