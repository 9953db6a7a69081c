#pragma once

#include <iosfwd>

#include "planning/plan_command.h"
#include "spillway/base/clock.h"

namespace spillway::cli {

/// `spillway plan --rebalance`: the stages of a stored plan on the costs of a new profile, the
/// moves of layers that make them even again, and whether these pay; prints, stores the plan to go
/// on with where --out names a file, and returns an exit code. Throws ConfigError for words that
/// contradict the plan and for a profile of another model, PlanError where nothing fits any more,
/// and IoError.
int rebalance_plan(const PlanOptions& options, std::ostream& out, const Clock& clock);

}  // namespace spillway::cli
