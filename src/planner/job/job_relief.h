#pragma once

#include "spillway/planner/job/job_plan.h"
#include "spillway/planner/job/plan_memo.h"
#include "spillway/planner/schedule/schedule.h"

namespace spillway::planner {

/// The plan for these lists of compute, with the layers as the request has them: as cut, or with
/// the faster of both kinds of relief, where both are open. `memo` is of this chain. Throws as
/// `make_job_plan`.
JobPlan relieved(const JobRequest& asked, const Partitioner& partitioner, const Schedule& compute,
                 const SecondsToBeat& to_beat, CutMemo& memo);

}  // namespace spillway::planner
