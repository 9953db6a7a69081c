#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/cluster/collectives.h"
#include "spillway/planner/cluster/job_simulation.h"

namespace spillway::planner {

/// One step of how the gradients of a stage become its new weights. All members go on together.
struct UpdatePhase {
  /// Phases of one lane use the same engine: of two stages, one waits for the other.
  std::uint32_t lane = 0;
  CollectivePhase streams;
  double bytes = 0.0;  ///< Bytes of each stream; parameters in the lane of the hosts' optimizers.
};

/// All-reduce between the devices that hold the stage; nothing for a single one.
std::vector<UpdatePhase> reduction_phases(const Job& job, const StageCosts& stage,
                                          const ClusterLinks& links,
                                          const std::vector<std::uint32_t>& devices);

/// The first lane of `host_update_phases` that brings weights back from the hosts.
inline constexpr std::uint32_t kFirstLaneToDevices = 5;

/// Lanes 0 to 6: reduce-scatter in the nodes, out to the hosts, reduce-scatter between these, the
/// update of what each host has of the sum, all-gather between hosts, in to the devices, all-gather
/// in the nodes.
std::vector<UpdatePhase> host_update_phases(const Job& job, const StageCosts& stage,
                                            const ClusterLinks& links,
                                            const std::vector<std::uint32_t>& devices);

}  // namespace spillway::planner
