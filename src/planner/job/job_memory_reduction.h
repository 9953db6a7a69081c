#pragma once

#include "spillway/planner/job/job_plan.h"
#include "spillway/planner/job/plan_memo.h"
#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner {

/// How much faster a step may become by other cuts than those that are made with unlimited memory,
/// or for the slowest stage: a step is more than that. Seen: a fifth.
inline constexpr double kMostGainOfCuts = 1.25;

/// The plan for these action lists of compute, with the layers as the request has them: as cut, or
/// with the fastest kind of memory reduction, where it is open. `memo` is of this chain. Throws as
/// `make_job_plan`.
JobPlan with_memory_reduction(const JobRequest& asked, const Partitioner& partitioner,
                              const Schedule& compute, const IncumbentSeconds& incumbent,
                              CutMemo& memo);

}  // namespace spillway::planner
