#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "spillway/base/clock.h"
#include "spillway/planner/cluster/job_simulation.h"

namespace spillway::cli {

/// Options of `simulate` for a stored plan for many ranks.
struct ClusterOptions {
  std::string plan;
  std::string cluster;  ///< File of a description; empty: the machine that the plan was made for.
  std::optional<std::uint32_t> ranks;  ///< Devices of that machine; else as many as the plan has.
  double speedup = 1.0;                ///< Speed of its devices over those of the plan.
  planner::PlacementOrder placement = planner::PlacementOrder::kPipelineFirst;
  planner::UpdatePlace update = planner::UpdatePlace::kDevice;
  std::optional<planner::SwapTarget> swap_to;  ///< Else as in the plan.
  std::optional<double> stragglers;            ///< Share of the time of a device.
  std::string trace;                           ///< Where the Chrome trace goes.
  bool json = false;
};

/// `spillway simulate` of a stored plan for many ranks: runs it on a machine and prints what it
/// takes there; returns an exit code. Throws ConfigError for files and counts that make no sense,
/// PlanError for a plan that has a fault or does not fit into the devices, IoError.
int simulate_on_cluster(const ClusterOptions& options, std::ostream& out, const Clock& clock);

}  // namespace spillway::cli
