#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "planning/plan_command.h"
#include "spillway/base/clock.h"

namespace spillway::cli {

/// `spillway plan --costs`: cuts a list of layer times, with one partitioner or with all, and
/// prints; returns an exit code. Throws ConfigError, PlanError and IoError.
int cut_costs(const PlanOptions& options, std::ostream& out, const Clock& clock);

/// The numbers of a text, between blanks, commas or line ends; what follows a # is passed over.
/// Throws ConfigError with file and line for anything else, and for a text without a number.
std::vector<double> costs_in(std::string_view text, const std::string& file);

}  // namespace spillway::cli
