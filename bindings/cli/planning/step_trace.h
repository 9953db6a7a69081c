#pragma once

#include "planning/planning_step.h"
#include "spillway/planner/step_events.h"
#include "spillway/planner/step_plan.h"
#include "spillway/profile/chrome_trace.h"

namespace spillway::cli {

/// The predicted step as a trace: operators and waits, transfers of one value joined, resident
/// bytes. What began in the step before starts at 0. The slowdown by transfers, to which the model
/// gives no moment, is one span at the end of the compute lane.
profile::StepTrace trace_of(const PlanningStep& step, const planner::StepPlan& plan,
                            const planner::StepEvents& events,
                            const planner::StepEstimate& estimate);

}  // namespace spillway::cli
