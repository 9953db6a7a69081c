#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/cluster/job_simulation.h"
#include "spillway/planner/job/job_plan.h"
#include "spillway/planner/job/job_request.h"

namespace spillway::machine {

/// What a machine gives each rank of a job, as a planner reckons with it: every rank links of its
/// own, and what sums share, as stages come to theirs one after the other.
struct MachineShare {
  LinkCosts peer;    ///< The slowest way from a rank to the next one of its pipeline, alone.
  LinkCosts reduce;  ///< Link of a rank in the ring that sums its gradients, alone.
  planner_schedule::SharedSums shared_sums;  ///< The link that is fullest while all ranks sum.
  TransferRate swap_rate;  ///< To its host or disks and back, while all ranks swap.
};

/// Of `ranks` devices in `data_parallel` pipelines on neighbouring devices. `ranks` is a multiple
/// of `data_parallel`. Throws ConfigError for a cluster with fewer devices, and for swaps to disks
/// that it does not have.
MachineShare share_of(const cluster::Cluster& cluster, std::uint32_t ranks,
                      std::uint32_t data_parallel, cluster::SwapTarget swap_target);

/// The request as it is on a machine for so many data-parallel replicas, which it does not name:
/// links and times of its devices, and no more memory than they have. What the hosts hold is for
/// `host_peaks`, so it has no limit here. Times are divided by `speed_over_profile`; without that
/// they stay those of the request. Throws as `share_of`.
job::JobRequest request_on(const job::JobRequest& request, const cluster::Cluster& cluster,
                           std::uint32_t data_parallel, cluster::SwapTarget swap_target);

/// What hosts hold for the ranks of a plan, of which so many neighbouring ones are on each: the sum
/// of what each of them has swapped at its most, which need not be at the same moment. By host;
/// ends where pipelines begin to lie on hosts as the first one does. `ranks_per_host` is at
/// least 1.
std::vector<Bytes> host_peaks(const job::JobPlan& plan, std::uint32_t ranks_per_host);

/// The most of them.
Bytes fullest_host(const job::JobPlan& plan, std::uint32_t ranks_per_host);

}  // namespace spillway::machine
