#pragma once

#include <cstddef>
#include <string>

#include "planning/planning_rates.h"
#include "setting_values.h"
#include "spillway/base/bytes.h"
#include "spillway/planner/swap_plan.h"
#include "spillway/profile/step_profile.h"

namespace spillway::cli {

/// A profile with what every planning command asks of it first.
struct PlanningStep {
  std::string path;
  profile::StepProfile profile;
  Bytes needed;                   ///< Alive at once, with what is too small to leave.
  Bytes smallest;                 ///< Below this budget some operator of the program cannot run.
  Bytes smallest_of_step;         ///< The same of the step alone.
  planner::OpIndex neediest = 0;  ///< The operator that sets it in the step.
  double incore_seconds = 0.0;    ///< All operators, nothing moved.
};

/// Throws IoError for a file that cannot be read and ConfigError for one that is no profile.
PlanningStep load_step(const std::string& path);

/// The same for a profile that is there already.
PlanningStep to_step(profile::StepProfile profile, std::string path);

/// Bytes in memory when so many pages are.
Bytes in_memory(const PlanningStep& step, std::uint64_t pages);

/// A size, or a share of what a step needs.
using StepBudget = runtime::BudgetRequest;

/// "4GiB" or "50%", as --budget has it.
ValueKind<StepBudget> budgets();

/// In bytes. Throws BudgetError, naming the smallest one and the operator that sets it, for a
/// budget that is too small.
Bytes budget_in(const PlanningStep& step, const StepBudget& asked);

/// As `spillway run --budget` takes it: of a GPU for that one alone.
std::string budget_of_run(const PlanningStep& step, Bytes size);

/// Warns as a run under this budget does: of an operator of the program, outside of the step, that
/// needs more.
void warn_of_oversize(const PlanningStep& step, Bytes budget);

/// Where tensors too small for the profile to list are much of what the step needs: their bytes,
/// and what plans and runs make of them. Empty elsewhere.
std::string small_text(const PlanningStep& step);

/// Limits of planning under that budget.
planner::SwapLimits limits_for(const PlanningStep& step, Bytes budget, const ChosenRates& rates);

/// Of shapes of operators with dozens of tensors, and of command lines, which fill pages.
inline constexpr std::size_t kMostBytesInLine = 90;

/// "aten::convolution (float[1, 8, 64, 64], …)"
std::string operator_text(const PlanningStep& step, planner::OpIndex op);

/// The operator that sets the smallest budget: as above, or "aten::_to_copy (float[1, 181]) before
/// the first step ended".
std::string neediest_text(const PlanningStep& step);

/// Where that is outside of the step: behind the smallest budget of the step, that of the program.
/// Empty elsewhere.
std::string smallest_of_program(const PlanningStep& step);

/// "activation 31 of 64.0 MiB from aten::relu"; the number is that of the profile.
std::string value_text(const PlanningStep& step, planner::ValueIndex value);

}  // namespace spillway::cli
