#pragma once

#include <optional>

#include "job_costs.h"
#include "spillway/planner/job/job_plan.h"
#include "spillway/schedule/schedule.h"

namespace spillway::job {

/// The plan for these stages: action lists with messages and all other costs, the times of the
/// step, and what ranks and hosts hold, whether or not there is room for it; or why there are none.
OrRefusal<JobPlan> simulated(const JobRequest& request, const partition::Partitioner& partitioner,
                             const schedule::Schedule& compute, const OrRefusal<CutModel>& model);

/// Gives the plan the times of its action lists, and the memory that goes with them.
void set_timing(const JobRequest& request, planner_schedule::ScheduleTiming timing, JobPlan& plan);

std::uint32_t fullest_rank(const JobPlan& plan);

/// The rank (`kRoom`) or the host that would hold more than there is; nothing where all have room.
std::optional<Refusal> lack_of_room(const JobRequest& request, const JobPlan& plan);

/// The plan, unless some rank or host lacks room for it.
OrRefusal<JobPlan> with_room(const JobRequest& request, OrRefusal<JobPlan> plan);

}  // namespace spillway::job
