#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

/// The first action that makes a schedule impossible, and why.
struct ScheduleFault {
  std::uint32_t rank = 0;
  std::size_t position = 0;  ///< In the rank's list; its length for an action that is missing.
  Action action;
  std::string reason;
};

/// "rank 1, action 4 (1B0): it comes before its forward"
std::string to_string(const ScheduleFault& fault);

/// What a rank may hold, by counting over its list (see rank_factors.h).
struct ScheduleLimits {
  std::optional<double> in_flight = std::nullopt;  ///< In the unit of `RankFactors`.
  /// Bytes of each rank, or one figure for all, with the sizes of the stages.
  std::vector<Bytes> memory = {};
  std::vector<StageCosts> stages = {};
  StashShares shares = {};
};

/// Looks for, in this order:
/// - work that is missing, comes twice, or comes before what it needs on its own rank;
/// - updates that leave something out: in lists with steps, each copy of a stage is stepped once
///   (once per micro-batch named), or sends its gradients and receives weights; where several
///   copies or pipelines are stepped, each sums its gradients once before. Sums may be left out
///   where nothing between ranks is written down: no message, no reduction, one pipeline;
/// - messages that are missing, come twice, or come before their cause or behind their use (unless
///   the lists have none at all: then each output counts as sent when it is there);
/// - pairs of ranks of which one sends in another order than the other receives;
/// - deadlocks, where every send waits for its receive, every receive for its send and every
///   reduction for all its ranks: the first action of a cycle, with the cycle;
/// - the first action beyond a limit.
/// Nothing, when there is no fault. Throws PlanError when an index points outside, ConfigError for
/// limits that do not belong to the schedule.
std::optional<ScheduleFault> first_fault(const Schedule& schedule,
                                         const ScheduleLimits& limits = {});

/// Throws PlanError with the first fault.
void check_schedule(const Schedule& schedule, const ScheduleLimits& limits = {});

}  // namespace spillway::planner
