#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "output_files.h"
#include "planning/plan_figures.h"
#include "planning/planning_rates.h"
#include "spillway/base/clock.h"

namespace spillway::cli {

/// Options that `plan` and `simulate` share.
struct CommonOptions {
  std::string profile;  ///< Path.
  std::optional<StepBudget> budget;
  std::vector<planner::Strategy> strategies{planner::strategies().front()};
  RateOptions rates;
  BoundEffort bound = BoundEffort::kQuick;
  std::optional<double> effort;  ///< Seconds for each plan.
  bool json = false;
};

struct PlanOptions {
  CommonOptions common;
  std::string out;  ///< Where the plan goes.
  bool frontier = false;
  std::string picture;
  std::uint32_t points = 9;  ///< Of the frontier.
};

/// Plans and prints; returns an exit code. Throws ConfigError, BudgetError, IoError and
/// UnsupportedError.
int plan_from_profile(const PlanOptions& options, std::ostream& out, const Clock& clock);

/// The plan of the first strategy. Throws BudgetError when the strategy has none for that budget.
EvaluatedPlan plan_asked_for(const CommonOptions& options, const PlanningCase& planning,
                             const Clock& clock);

/// Files that both commands read, for `check_outputs`.
std::vector<NamedFile> files_read(const std::string& profile, const RateOptions& rates);

}  // namespace spillway::cli
