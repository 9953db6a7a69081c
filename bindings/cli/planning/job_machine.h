#pragma once

#include <string>

#include "planning/plan_command.h"
#include "spillway/planner/cluster/cluster.h"

namespace spillway::cli {

/// What a rank moves each way while it moves both, in bytes per second; 0: nowhere.
struct SwapRates {
  double host = 0.0;
  double disk = 0.0;  ///< Behind the host's memory, where that has an end and disks are named.
};

/// Of the words about a link, disks, which so many ranks share, and the memory between them. Throws
/// as `choose_rates`.
SwapRates swap_rates(const RateOptions& options, std::uint32_t sharers,
                     const profile::StepProfile& profile);

/// Whether disks are named, and no memory in front of them.
bool swaps_to_disks_alone(const RateOptions& options);

/// The machine behind --topology, as the other words leave it to the job: less memory, a slower
/// link to the host, measured disks. Throws ConfigError for what it does not have, and what
/// `cluster_path` and `parse_cluster` throw.
planner::Cluster machine_for(const PlanOptions& options, const profile::StepProfile& profile);

}  // namespace spillway::cli
