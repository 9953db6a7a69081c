#pragma once

#include <iosfwd>

#include "planning/plan_command.h"
#include "spillway/base/clock.h"

namespace spillway::cli {

/// `spillway plan` for many ranks: plans a profile, cuts a list of costs, re-balances or checks a
/// stored plan, and prints; returns an exit code. Throws ConfigError, PlanError and IoError.
int plan_for_ranks(const PlanOptions& options, std::ostream& out, const Clock& clock);

}  // namespace spillway::cli
