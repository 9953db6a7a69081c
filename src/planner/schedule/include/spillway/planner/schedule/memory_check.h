#pragma once

#include <optional>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/planner/schedule/schedule_timing.h"
#include "spillway/schedule/schedule_check.h"

namespace spillway::planner {

/// Limits of what a rank holds, counted over its action list (see rank_factors.h).
struct ScheduleLimits {
  std::optional<double> in_flight = std::nullopt;  ///< In the unit of `RankFactors`.
  /// Bytes of each rank, or one figure for all, with the sizes of the stages.
  std::vector<Bytes> memory = {};
  std::vector<StageCosts> stages = {};
  StashShares shares = {};
};

/// The first action that takes a rank over what it may hold. The schedule must have no other fault
/// (`schedule::first_fault`). Throws ConfigError for limits that do not belong to it.
std::optional<schedule::ScheduleFault> memory_fault(const Schedule& schedule,
                                                    const ScheduleLimits& limits);

}  // namespace spillway::planner
