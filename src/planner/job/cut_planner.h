#pragma once

#include <cstdint>

#include "spillway/planner/job/job_plan.h"
#include "spillway/schedule/schedule.h"

namespace spillway::job {

/// Plans action lists of compute under the cuts of one partitioner, with the layers as the request
/// has them: as cut, or with the fastest kind of memory reduction, where it is open. `memo` is of
/// this chain. Refused as `plan_choice`.
OrRefusal<JobPlan> plan_under_cuts(const JobRequest& request,
                                   const partition::Partitioner& partitioner,
                                   const schedule::Schedule& compute,
                                   const IncumbentSeconds& incumbent, CutMemo& memo);

/// Passes of micro-batches through stages: the work of one simulation, without messages.
std::uint64_t stage_passes(const schedule::Schedule& compute);

}  // namespace spillway::job
