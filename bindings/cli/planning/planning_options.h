#pragma once

#include <string>
#include <vector>

#include "planning/plan_command.h"
#include "planning/simulate_command.h"

namespace CLI {
class App;
}

namespace spillway::cli {

/// Adds the options of `spillway plan`; `words` must outlive the parsing.
void add_plan_options(CLI::App& app, PlanWords& words);

/// The same for `spillway simulate`.
void add_simulate_options(CLI::App& app, SimulateWords& words);

}  // namespace spillway::cli
