#pragma once

#include <string>

#include "spillway/planner/schedule/schedule_timing.h"
#include "spillway/schedule/schedule_drawing.h"

namespace spillway::planner_schedule {

/// The lists as the planner's simulator runs them.
inline std::string drawing(const Schedule& schedule, const ScheduleTiming& timing,
                           double seconds_per_column = 1.0) {
  return schedule::drawing(schedule, timing.spans, timing.step_seconds, seconds_per_column);
}

/// With every forward and each half of a backward one column long.
inline std::string drawing(const Schedule& schedule) {
  return drawing(schedule, time_schedule(schedule, even_costs(schedule, 1.0, 1.0, 1.0)));
}

}  // namespace spillway::planner_schedule
