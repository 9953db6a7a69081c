#pragma once

#include <iosfwd>

#include "planning/simulate_command.h"
#include "spillway/base/clock.h"

namespace spillway::cli {

/// `spillway simulate` of a stored plan for many ranks: runs it on the machine of --cluster, else
/// on the one that it was made for, and prints what it takes there; returns an exit code. Throws
/// ConfigError for files and counts that make no sense, PlanError for a plan that has a fault or
/// does not fit into the devices, IoError.
int simulate_on_cluster(const SimulateOptions& options, std::ostream& out, const Clock& clock);

}  // namespace spillway::cli
