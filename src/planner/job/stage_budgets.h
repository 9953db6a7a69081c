#pragma once

#include "spillway/planner/job/job_plan.h"
#include "spillway/planner/job/plan_memo.h"
#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner {

/// A plan whose stages swap parts of their stashes and recompute layers until ranks fit.
///
/// Partitions know stages, and devices limit ranks. Where a rank has several of them, or the copy
/// of another one (GEMS, Chimera), what each may hold is found by trying: less where a rank has
/// come out too full, and where no cuts fit, what ranks leave free under those that hold least.
/// Refused with `kRoom` where those do not fit either, with `kPruned` where a rank computes for
/// `incumbent_seconds` under the partitioner's cuts, and as `plan_choice` says.
OrRefusal<JobPlan> reduced_by_stage(const JobRequest& request, const Partitioner& partitioner,
                                    const Schedule& compute, double incumbent_seconds,
                                    CutMemo& memo);

}  // namespace spillway::planner
