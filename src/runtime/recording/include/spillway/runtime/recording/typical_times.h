#pragma once

#include <deque>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/profile/tape_recorder.h"

namespace spillway::runtime {

/// What the operators of one step took, waits left out, and what moved in their time.
struct OpTimes {
  std::vector<Duration> measured;
  std::vector<Bytes> moved;  ///< Empty: unknown, counts as nothing.
};

OpTimes op_times_of(const profile::RecordedStep& step);

/// The same of equal steps.
using StepTimes = std::deque<OpTimes>;

/// What the operators would have taken without transfers beside them, each of whose bytes costs
/// `slowdown` seconds. Transfers are counted page by page, so what a short operator cannot have
/// lost is taken from those behind it; none loses more than half of its time.
std::vector<Duration> times_alone(const OpTimes& step, double slowdown);

/// The median of what the steps take alone.
Duration typical_time(const StepTimes& steps, double slowdown);

/// Per operator the median, scaled so that they add up to the median step: a disturbance hits few
/// operators, but each time others. There is at least one step.
std::vector<Duration> typical_op_times(const StepTimes& steps, double slowdown);

}  // namespace spillway::runtime
