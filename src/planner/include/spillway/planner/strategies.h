#pragma once

#include <span>
#include <string_view>

#include "spillway/planner/step_plan.h"

namespace spillway::planner {

/// A way to plan a step. All are judged by the same event model and bound.
struct Strategy {
  std::string_view name;
  std::string_view summary;  ///< One line for users.
  std::string_view source;   ///< Paper or repository that it follows; empty for ours.
  StepPlan (*plan)(const StepTape& tape, const SwapLimits& limits);
};

/// All of them, ours first.
std::span<const Strategy> strategies();

/// Throws ConfigError with the nearest name.
const Strategy& strategy_named(std::string_view name);

}  // namespace spillway::planner
