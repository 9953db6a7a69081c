#include "job_loads.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "spillway/planner/schedule/rank_memory.h"

namespace spillway::planner {
namespace {

/// Of a stage that hosts update: all of its weights and gradients pass each of them, and each keeps
/// its share of the optimizer's states.
void add_updates(const Job& job, const ClusterLinks& links, std::span<const std::uint32_t> devices,
                 std::map<std::uint32_t, Bytes>& hosts) {
  const Schedule& schedule = job.schedule;
  for (std::uint32_t stage = 0; stage < schedule.stages; ++stage) {
    // Once for each node, however many of its devices have a copy of the stage.
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
    // Devices are in the order of ranks, one pipeline after the other.
    for (std::size_t i = 0; i < devices.size(); ++i)
      hosts[links.node_of(devices[i])] += swapped[i % swapped.size()];
  }
  if (job.update == UpdatePlace::kHost) add_updates(job, links, devices, hosts);
  Bytes most;
  for (const auto& [node, bytes] : hosts) most = std::max(most, bytes);
  return most;
}

std::vector<LinkClassLoad> loads_of(const ClusterLinks& links, std::span<const std::uint32_t> nodes,
                                    double seconds, std::span<const double> carried) {
  std::vector<LinkClassLoad> loads(kLinkClasses);
  std::vector<double> capacity(kLinkClasses, 0.0);
  for (std::uint32_t link = 0; link < links.size(); ++link) {
    // What the others have is no reserve of the job.
    const NodeRange behind = links.nodes_behind(link);
    const auto first = std::lower_bound(nodes.begin(), nodes.end(), behind.begin);
    if (first == nodes.end() || *first >= behind.end) continue;
    LinkClassLoad& load = loads[static_cast<std::size_t>(links.kind(link))];
    load.kind = links.kind(link);
    ++load.links;
    load.carried += carried[link];
    // The mean of a class is over what its links could have carried, as disks read and write at
    // unlike rates.
    const double most = links.rate(link) * seconds;
    capacity[static_cast<std::size_t>(load.kind)] += most;
    if (most > 0.0) load.busiest = std::max(load.busiest, carried[link] / most);
  }
  for (std::size_t kind = 0; kind < loads.size(); ++kind)
    if (capacity[kind] > 0.0) loads[kind].mean = loads[kind].carried / capacity[kind];
  std::erase_if(loads, [](const LinkClassLoad& load) { return load.links == 0; });
  return loads;
}

}  // namespace spillway::planner
