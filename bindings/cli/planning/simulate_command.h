#pragma once

#include <iosfwd>
#include <string>

#include "planning/plan_command.h"

namespace spillway::cli {

/// Options of `simulate` for a step of one device.
struct SimulateOptions {
  CommonOptions common;
  std::string plan;    ///< A stored plan; empty: it is made.
  std::string trace;   ///< Where the Chrome trace goes.
  std::string beside;  ///< The trace of a run, to be laid beside it.
};

/// Runs the event model over a plan, prints what it says and writes a trace; returns an exit code.
/// Throws as `plan_from_profile`, and PlanError for a stored plan that is for another step.
int simulate_plan(const SimulateOptions& options, std::ostream& out, const Clock& clock);

}  // namespace spillway::cli
