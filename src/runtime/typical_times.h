#pragma once

#include <deque>
#include <vector>

#include "spillway/base/clock.h"

namespace spillway::runtime {

/// What the operators of equal steps took: per step, per operator.
using StepTimes = std::deque<std::vector<Duration>>;

/// The median of what the steps took.
Duration typical_time(const StepTimes& steps);

/// Per operator the median, scaled so that they add up to the median step: a disturbance hits few
/// operators, but each time others. There is at least one step.
std::vector<Duration> typical_op_times(const StepTimes& steps);

}  // namespace spillway::runtime
