#pragma once

#include <string>
#include <vector>

#include "planning/plan_command.h"
#include "planning/simulate_command.h"

namespace spillway::cli {

class CommandLine;

/// Adds the options of `spillway plan`; `options` must outlive the parsing.
void add_plan_options(CommandLine& line, PlanOptions& options);

/// The same for `spillway simulate`.
void add_simulate_options(CommandLine& line, SimulateOptions& options);

}  // namespace spillway::cli
