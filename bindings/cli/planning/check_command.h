#pragma once

#include <iosfwd>
#include <string>

namespace spillway::cli {

/// Options of `check`.
struct CheckOptions {
  std::string plan;  ///< A stored plan for many ranks, or lists of actions as CSV.
  bool json = false;
};

/// `spillway check`: looks for the first fault of the plan and prints what it looked at; returns an
/// exit code. Throws PlanError with the fault, ConfigError and IoError.
int check_plan(const CheckOptions& options, std::ostream& out);

}  // namespace spillway::cli
