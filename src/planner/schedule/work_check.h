#pragma once

#include <optional>

#include "spillway/planner/schedule/schedule_check.h"
#include "spillway/planner/schedule/weight_copies.h"

namespace spillway::planner {

/// Each micro-batch forward, then backward on every stage, steps behind the micro-batches that they
/// name, weights on the device when they are needed.
std::optional<ScheduleFault> work_fault(const Schedule& schedule, const WeightCopies& copies);

/// The first action that takes a rank over what it may hold.
std::optional<ScheduleFault> memory_fault(const Schedule& schedule, const WeightCopies& copies,
                                          const ScheduleLimits& limits);

}  // namespace spillway::planner
