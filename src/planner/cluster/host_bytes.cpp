#include "host_bytes.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace spillway::planner {
namespace {

bool moves_weights(const Action& action) {
  return action.kind == ActionKind::kSwapInWeights || action.kind == ActionKind::kSwapOutWeights;
}

/// What a rank has swapped at its most, counted over its list. The host keeps a copy of weights
/// that come and go.
Bytes swapped_by(const Job& job, const std::vector<Action>& list) {
  Bytes now;
  Bytes most;
  std::set<std::uint32_t> streamed;
  for (const Action& action : list) {
    const Bytes stash = job.stages[action.stage].stash;
    const Bytes part = job.swapped.empty() ? Bytes(0) : job.swapped[action.stage];
    if (action.kind == ActionKind::kForward) now += part;
    if (action.kind == ActionKind::kSwapOut) now += stash;
    most = std::max(most, now);
    if (makes_input_gradient(action.kind)) now -= part;
    if (action.kind == ActionKind::kSwapIn) now -= stash;
    // Hosts that update have all weights anyway.
    if (moves_weights(action) && job.update == UpdatePlace::kDevice) streamed.insert(action.stage);
  }
  for (const std::uint32_t stage : streamed) most += job.stages[stage].weights;
  return most;
}

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
    std::vector<Bytes> swapped;
    for (const auto& list : job.schedule.ranks) swapped.push_back(swapped_by(job, list));
    for (std::size_t i = 0; i < devices.size(); ++i)
      hosts[links.node_of(devices[i])] += swapped[i % swapped.size()];
  }
  if (job.update == UpdatePlace::kHost) add_updates(job, links, devices, hosts);
  Bytes most;
  for (const auto& [node, bytes] : hosts) most = std::max(most, bytes);
  return most;
}

}  // namespace spillway::planner
