#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "output_files.h"
#include "planning/job_options.h"
#include "planning/plan_figures.h"
#include "planning/planning_rates.h"
#include "spillway/base/clock.h"

namespace spillway::cli {

/// Options that `plan` and `simulate` share, as given; an empty text: not given.
struct CommonOptions {
  std::string profile;  ///< Path.
  std::string budget;
  std::string strategy;
  RateOptions rates;
  std::string bound;   ///< quick or tight.
  std::string effort;  ///< Seconds for each plan.
  bool json = false;
};

struct PlanOptions {
  CommonOptions common;
  std::string out;  ///< Where the plan goes.
  bool frontier = false;
  std::string picture;
  std::string points;
  JobOptions job;  ///< Where any of it is given, the plan is for many ranks.
};

/// `--frontier FILE.svg` as two options: the file may be missing, and what follows may be the
/// profile.
std::vector<std::string> split_frontier(const std::vector<std::string>& words);

/// Plans and prints; returns an exit code. Throws ConfigError, BudgetError, IoError and
/// UnsupportedError.
int plan_from_profile(const PlanOptions& options, std::ostream& out, const Clock& clock);

/// The plan of one strategy (ours when nothing is named). Throws BudgetError when the strategy has
/// none for that budget.
EvaluatedPlan plan_asked_for(const CommonOptions& options, const PlanningCase& planning,
                             const Clock& clock);

/// Throws ConfigError for an unknown word; empty: quick.
BoundEffort bound_effort(const std::string& word);

/// Throws ConfigError for what is no time; `fallback` without a word.
double effort_seconds(const std::string& word, double fallback);

/// Files that both commands read, for `check_outputs`.
std::vector<NamedFile> files_read(const CommonOptions& options);

}  // namespace spillway::cli
