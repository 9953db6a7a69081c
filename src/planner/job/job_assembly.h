#pragma once

#include <optional>

#include "spillway/planner/job/job_plan.h"
#include "spillway/planner/partition/partition_estimate.h"
#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner {

/// The plan for these stages: action lists with messages and all other costs, the times of the
/// step, and what ranks and hosts hold, whether or not there is room for it.
OrRefusal<JobPlan> simulated(const JobRequest& request, const Partitioner& partitioner,
                             const Schedule& compute, const SegmentCosts& costs,
                             const PartitionEstimate& estimate);

/// The plan with the times and the memory that its action lists have now.
JobPlan timed(const JobRequest& request, JobPlan plan);

std::uint32_t fullest_rank(const JobPlan& plan);

/// The rank (`kRoom`) or the host that would hold more than there is; nothing where all have room.
std::optional<Refusal> lack_of_room(const JobRequest& request, const JobPlan& plan);

/// The plan, unless some rank or host lacks room for it.
OrRefusal<JobPlan> with_room(const JobRequest& request, OrRefusal<JobPlan> plan);

}  // namespace spillway::planner
