#pragma once

#include <optional>

#include "spillway/schedule/schedule_check.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::schedule {

/// What would leave copies of a stage different, or gradients out: sums and steps that are missing,
/// come twice, or come before the gradients that they use. Action lists without any step may leave
/// steps and sums to their user.
std::optional<ScheduleFault> update_fault(const Schedule& schedule, const WeightCopies& copies);

}  // namespace spillway::schedule
