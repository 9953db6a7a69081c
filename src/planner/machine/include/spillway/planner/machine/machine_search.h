#pragma once

#include <string>
#include <vector>

#include "spillway/planner/cluster/job_simulation.h"
#include "spillway/planner/job/job_search.h"

namespace spillway::machine {

/// A plan that was run on the machine.
struct MachineRun {
  std::string schedule;
  std::uint32_t data_parallel = 1;
  cluster::SwapTarget swap_target = cluster::SwapTarget::kHost;
  double planned_step_seconds = 0.0;  ///< With links of its own for every rank.
  double step_seconds = 0.0;          ///< With the machine's, which they share.
  std::string variant{};              ///< Options of the schedule.
};

struct MachineSearch {
  job::JobSearch search;    ///< The plan, and all that was tried by the links of `share_of`.
  job::JobRequest request;  ///< Request that the plan was made for: that of `request_on`.
  cluster::SwapTarget swap_target = cluster::SwapTarget::kHost;  ///< Target of the plan.
  cluster::JobTiming timing;     ///< Timing of the plan on the machine.
  std::vector<MachineRun> runs;  ///< Fastest on the machine first; the first is the plan.
};

/// `make_job` of a plan, on neighbouring devices.
cluster::Job job_of(const job::JobPlan& plan, cluster::SwapTarget swap_target);

/// One choice on a machine. Swaps go to the hosts; where one of these would be too full, all of
/// them go to the disks of the nodes. The plan is only there where the attempt is possible.
struct MachineAttempt {
  job::JobAttempt attempt;
  job::JobPlan plan;
  cluster::SwapTarget swap_target = cluster::SwapTarget::kHost;
};
MachineAttempt try_choice_on(const job::JobRequest& request, const cluster::Cluster& cluster,
                             const partition::Partitioner& partitioner,
                             const job::JobChoice& choice);

/// The fastest plan on a machine: all choices by what the machine gives each rank, then the twelve
/// best of them in a simulation in which ranks share its links, and the best of each schedule on
/// each number of data-parallel replicas that may be faster by its bound, up to a million actions
/// of short action lists; then the order of layers of the fastest one once more, as `search_job`
/// does; it counts if it is as fast there. `request` has the profile's times; its links count for
/// nothing, its `device_memory` where that is less than the machine's.
///
/// Refused as by `search_job`. Throws ConfigError for a cluster with fewer devices than ranks.
planner_schedule::OrRefusal<MachineSearch> search_job_on(const job::JobRequest& request,
                                                         const cluster::Cluster& cluster,
                                                         const job::ShowChoice& show = {});

}  // namespace spillway::machine
