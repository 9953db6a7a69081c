#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "spillway/schedule/schedule.h"

namespace spillway::schedule {

/// The first action that makes a schedule impossible, and why.
struct ScheduleFault {
  std::uint32_t rank = 0;
  std::size_t position =
      0;  ///< In the rank's action list; its length for an action that is missing.
  Action action;
  std::string reason;
};

/// "rank 1, action 4 (1B0): it comes before its forward"
std::string to_string(const ScheduleFault& fault);

/// Looks for, in this order:
/// - work that is missing, comes twice, or comes before what it needs on its own rank;
/// - updates that leave something out: in action lists with steps, each copy of a stage is stepped
/// once
///   (once per micro-batch named), or sends its gradients and receives weights; where several
///   copies or pipelines are stepped, each sums its gradients once before. Sums may be left out
///   where nothing between ranks is written down: no message, no reduction, one pipeline;
/// - messages that are missing, come twice, or come before their cause or behind their use (unless
///   the action lists have none at all: then each output counts as sent when it is there);
/// - pairs of ranks of which one sends in another order than the other receives;
/// - deadlocks, where every send waits for its receive, every receive for its send and every
///   reduction for all its ranks: the first action of a cycle, with the cycle.
/// Nothing, when there is no fault. Throws PlanError when an index points outside.
std::optional<ScheduleFault> first_fault(const Schedule& schedule);

/// Throws PlanError with the first fault.
void check_schedule(const Schedule& schedule);

}  // namespace spillway::schedule
