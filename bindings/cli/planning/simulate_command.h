#pragma once

#include <iosfwd>
#include <string>

#include "planning/plan_command.h"

namespace spillway::cli {

struct SimulateOptions {
  CommonOptions common;
  std::string plan;    ///< A stored plan; empty: it is made.
  std::string trace;   ///< Where the Chrome trace goes.
  std::string beside;  ///< The trace of a run, to be laid beside it.
  /// A description of a machine, for a stored plan for many ranks in the profile's place; empty:
  /// the one that the plan was made for.
  std::string cluster;
  std::string ranks;    ///< Devices of that machine; empty: as many as the plan has.
  std::string speedup;  ///< Speed of its devices over those of the plan; empty: 1.
  std::string placement{};
  std::string update{};
  std::string swap_to{};
  std::string stragglers{};  ///< Share of the time of a device.

  /// Whether any word is about a machine.
  bool has_machine() const {
    return !(cluster + ranks + speedup + placement + update + swap_to + stragglers).empty();
  }
};

/// Runs the event model over a plan, prints what it says and writes a trace; returns an exit code.
/// Throws as `plan_from_profile`, and PlanError for a stored plan that is for another step.
int simulate_plan(const SimulateOptions& options, std::ostream& out, const Clock& clock);

}  // namespace spillway::cli
