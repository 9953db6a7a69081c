#pragma once

#include <iosfwd>

#include "planning/plan_command.h"

namespace spillway::cli {

/// `spillway plan --check`: looks for the first fault of a stored plan for many ranks, or of lists
/// of actions as CSV, and prints what it looked at; returns an exit code. Throws PlanError with the
/// fault, ConfigError and IoError.
int check_plan(const PlanOptions& options, std::ostream& out);

}  // namespace spillway::cli
