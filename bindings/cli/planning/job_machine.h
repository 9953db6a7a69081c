#pragma once

#include <string>

#include "planning/commands.h"
#include "spillway/planner/cluster/cluster.h"

namespace spillway::cli {

/// What a rank moves each way while it moves both; none: nowhere.
struct SwapRates {
  TransferRate host;
  TransferRate disk;  ///< Behind the host's memory, where that has an end and disks are named.
};

/// Of the options about a link, disks, which so many ranks share, and the memory between them.
/// Throws as `choose_rates`.
SwapRates swap_rates(const RateOptions& options, std::uint32_t sharers,
                     const profile::StepProfile& profile);

/// The machine behind --cluster, as the other options leave it to the job: less memory, a slower
/// link to the host, measured disks. Throws ConfigError for what it does not have, and what
/// `read_cluster` throws.
planner::Cluster machine_for(const JobOptions& options, const profile::StepProfile& profile);

}  // namespace spillway::cli
