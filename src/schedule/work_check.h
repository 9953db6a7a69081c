#pragma once

#include <optional>

#include "spillway/schedule/schedule_check.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::schedule {

/// Each micro-batch forward, then backward on every stage, steps behind the micro-batches that they
/// name, weights on the device when they are needed.
std::optional<ScheduleFault> work_fault(const Schedule& schedule, const WeightCopies& copies);

}  // namespace spillway::schedule
