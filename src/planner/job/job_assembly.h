#pragma once

#include "spillway/planner/job/job_plan.h"
#include "spillway/planner/partition/partition_estimate.h"
#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner {

/// All that both ways of memory reduction have in common, once cuts and their estimate are there:
/// the action lists with their messages, and what they cost.
JobPlan started(const JobRequest& request, const Partitioner& partitioner, const Schedule& compute,
                const SegmentCosts& costs, const PartitionEstimate& estimate);

/// With the times of its step, and what ranks and hosts hold.
JobPlan timed(const JobRequest& request, JobPlan plan);

/// The same; throws as `require_room`.
JobPlan finished(const JobRequest& request, JobPlan plan);

std::uint32_t fullest_rank(const JobPlan& plan);

/// Throws NoRoomError for a rank, and PlanError for a host, that would hold more than there is.
void require_room(const JobRequest& request, const JobPlan& plan);

}  // namespace spillway::planner
