#pragma once

#include "spillway/planner/job/job_search.h"

namespace spillway::planner {

/// The likeliest choices of a first look once more, with the cuts of all partitioners: one that was
/// slower than the best plan, or had no room, may win by these. At most 2,048 passes of
/// micro-batches through stages in all, and none that was a fourth slower. What wins is added to
/// the attempts, and takes the place of `best`.
void try_all_cuts(const JobRequest& request, const Partitioner& partitioner, PlanMemo& memo,
                  std::vector<JobAttempt>& attempts, std::optional<JobPlan>& best);

}  // namespace spillway::planner
