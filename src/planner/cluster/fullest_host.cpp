#include "fullest_host.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "spillway/planner/schedule/host_bytes.h"

namespace spillway::planner {
namespace {

/// Of a stage that hosts update: all of its weights and gradients pass each of them, and each keeps
/// its share of the optimizer's states.
void add_updates(const Job& job, const ClusterLinks& links, std::span<const std::uint32_t> devices,
                 std::map<std::uint32_t, Bytes>& hosts) {
  const Schedule& schedule = job.schedule;
  for (std::uint32_t stage = 0; stage < schedule.stages; ++stage) {
    std::set<std::uint32_t> nodes;
    for (std::size_t first = 0; first < devices.size(); first += schedule.rank_count())
      for (std::uint32_t replica = 0; replica < schedule.replica_count(); ++replica)
        nodes.insert(links.node_of(devices[first + schedule.rank_of(replica, stage)]));
    const StageCosts& costs = job.stages[stage];
    for (const std::uint32_t node : nodes)
      hosts[node] += costs.weights + costs.gradients + costs.optimizer_state / nodes.size();
  }
}

}  // namespace

Bytes fullest_host(const Job& job, const ClusterLinks& links,
                   std::span<const std::uint32_t> devices) {
  std::map<std::uint32_t, Bytes> hosts;
  if (job.swap_target == SwapTarget::kHost) {
    // Hosts that update have all weights anyway.
    const std::vector<Bytes> swapped = job.update == UpdatePlace::kHost
                                           ? stashes_on_host(job.schedule, job.stages)
                                           : host_bytes(job.schedule, job.stages);
    for (std::size_t i = 0; i < devices.size(); ++i)
      hosts[links.node_of(devices[i])] += swapped[i % swapped.size()];
  }
  if (job.update == UpdatePlace::kHost) add_updates(job, links, devices, hosts);
  Bytes most;
  for (const auto& [node, bytes] : hosts) most = std::max(most, bytes);
  return most;
}

}  // namespace spillway::planner
