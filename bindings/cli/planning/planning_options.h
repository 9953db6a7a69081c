#pragma once

#include <string>
#include <vector>

#include "planning/plan_command.h"
#include "planning/simulate_command.h"

namespace spillway::cli {

class CommandLine;

/// Adds the options of `spillway plan`; `words` must outlive the parsing.
void add_plan_options(CommandLine& line, PlanWords& words);

/// The same for `spillway simulate`.
void add_simulate_options(CommandLine& line, SimulateWords& words);

}  // namespace spillway::cli
