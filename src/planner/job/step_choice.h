#pragma once

#include "job_memory_reduction.h"

namespace spillway::planner {

/// As `with_memory_reduction`; where the partitioner is ours, under those cuts of `cut_effort`
/// whose step is the fastest by the schedule's simulator. Exact cuts have the quickest slowest
/// stage, and a step is more than that: it fills and drains, and waits for messages. Throws what
/// the exact cuts throw, where no others work or those are too slow.
JobPlan quickest(const JobRequest& asked, const Partitioner& partitioner, const Schedule& compute,
                 const IncumbentSeconds& incumbent, CutMemo& memo);

}  // namespace spillway::planner
