#pragma once

#include <vector>

#include "spillway/planner/job/job_plan.h"

namespace spillway::planner {

/// By rank, the most that its host holds for it: the parts that stages swap of each stash
/// (`swapped`, by stage), what actions of the lists have out, and the weights that they bring in
/// again. Each at its own worst moment, of which mostly one is there.
std::vector<Bytes> host_bytes(const Schedule& actions, const ScheduleCosts& costs,
                              const std::vector<Bytes>& swapped);

/// What stages hold before swaps and recomputation of stashes, as the cuts count it.
std::vector<HeldBytes> bytes_before(const JobRequest& request, const SegmentCosts& costs,
                                    const PartitionEstimate& estimate);

/// The same with what plan.actions hold of plan.costs' stashes.
std::vector<HeldBytes> bytes_after(const JobPlan& plan);

}  // namespace spillway::planner
