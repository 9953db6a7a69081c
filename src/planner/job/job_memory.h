#pragma once

#include <vector>

#include "spillway/planner/job/job_plan.h"

namespace spillway::planner {

/// What stages hold before swaps and recomputation of stashes, as the cuts count it.
std::vector<HeldBytes> bytes_before(const JobRequest& request, const SegmentCosts& costs,
                                    const PartitionEstimate& estimate);

/// The same with what plan.actions hold of plan.costs' stashes.
std::vector<HeldBytes> bytes_after(const JobPlan& plan);

}  // namespace spillway::planner
