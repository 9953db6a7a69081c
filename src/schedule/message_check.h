#pragma once

#include <optional>

#include "spillway/schedule/schedule_check.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::schedule {

/// Messages that miss their other end, or stand at the wrong side of the compute they belong to.
std::optional<ScheduleFault> message_fault(const Schedule& schedule, const WeightCopies& copies);

/// The first receive that expects another message than the one that comes.
std::optional<ScheduleFault> order_fault(const Schedule& schedule, const WeightCopies& copies);

}  // namespace spillway::schedule
