#include "update_phases.h"

#include <algorithm>
#include <map>

namespace spillway::planner {
namespace {

using Group = std::vector<Endpoint>;

/// Devices by their node.
std::vector<Group> groups_of(const ClusterLinks& links, const std::vector<std::uint32_t>& devices) {
  std::map<std::uint32_t, Group> nodes;
  for (const std::uint32_t device : devices) nodes[links.node_of(device)].push_back({device});
  std::vector<Group> groups;
  for (auto& [node, group] : nodes) groups.push_back(std::move(group));
  return groups;
}

/// Routes that are used at the same time.
class SideBySide {
 public:
  void add(const Route& route) {
    for (const LinkUse& use : route.uses) uses_[use.link] += use.streams;
    latency_ = std::max(latency_, route.latency_seconds);
  }
  void add(const CollectivePhase& phase) {
    add(Route{phase.uses, phase.latency_seconds});
    share_ = phase.bytes_per_stream;
    seconds_per_byte_ = std::max(seconds_per_byte_, phase.seconds_per_byte);
  }
  UpdatePhase phase(std::uint32_t lane, double bytes, const ClusterLinks& links) const {
    UpdatePhase phase{lane, {1.0, latency_, seconds_per_byte_, {}}, bytes * share_};
    if (seconds_per_byte_ == 0.0)
      for (const auto& [link, streams] : uses_)
        phase.streams.seconds_per_byte =
            std::max(phase.streams.seconds_per_byte, streams / links.rate(link));
    for (const auto& [link, streams] : uses_) phase.streams.uses.push_back({link, streams});
    return phase;
  }

 private:
  std::map<std::uint32_t, double> uses_;
  double latency_ = 0.0;
  double share_ = 1.0;
  double seconds_per_byte_ = 0.0;  // Of collectives; of copies it is that of their links.
};

/// One collective in each node, all at once. The groups are equally large.
UpdatePhase within_nodes(std::uint32_t lane, CollectiveKind kind, const ClusterLinks& links,
                         const std::vector<Group>& groups, double bytes) {
  SideBySide all;
  for (const Group& group : groups)
    all.add(make_collective(kind, CollectiveAlgorithm::kRing, links, group).phases.front());
  return all.phase(lane, bytes, links);
}

/// One stream between each device and its host.
UpdatePhase copies(std::uint32_t lane, bool is_out, const ClusterLinks& links,
                   const std::vector<Group>& groups, double bytes) {
  SideBySide all;
  for (const Group& group : groups)
    for (const Endpoint& each : group) {
      const Endpoint host{each.device, /*is_host=*/true};
      all.add(is_out ? links.route(each, host) : links.route(host, each));
    }
  return all.phase(lane, bytes, links);
}

}  // namespace

std::vector<UpdatePhase> reduction_phases(const Job& job, const StageCosts& stage,
                                          const ClusterLinks& links,
                                          const std::vector<std::uint32_t>& devices) {
  const double bytes = count_of(stage.gradients);
  Group members;
  for (const std::uint32_t device : devices) members.push_back({device});
  const Collective collective =
      job.algorithm ? make_collective(CollectiveKind::kAllReduce, *job.algorithm, links, members)
                    : fastest_collective(CollectiveKind::kAllReduce, links, members, bytes);
  std::vector<UpdatePhase> phases;
  for (const CollectivePhase& each : collective.phases)
    phases.push_back({0, each, bytes * each.bytes_per_stream});
  return phases;
}

std::vector<UpdatePhase> host_update_phases(const Job& job, const StageCosts& stage,
                                            const ClusterLinks& links,
                                            const std::vector<std::uint32_t>& devices) {
  const std::vector<Group> groups = groups_of(links, devices);
  std::size_t group = groups.front().size();
  for (const Group& each : groups)
    if (each.size() != group) group = 1;  // Uneven: every device sends all of its gradients.
  const double gradients = count_of(stage.gradients);
  const double weights = count_of(stage.weights);
  const auto shards = static_cast<double>(group);
  const auto hosts = static_cast<double>(groups.size());
  // Between hosts, each shard takes the network card beside its device.
  Group between;
  SideBySide updates;
  for (const Group& each : groups) {
    for (std::size_t i = 0; i < group; ++i) between.push_back({each[i].device, /*is_host=*/true});
    updates.add(links.update_route(each.front().device));
  }
  const auto across = [&](CollectiveKind kind) {
    return make_collective(kind, CollectiveAlgorithm::kHierarchical, links, between).phases;
  };
  std::vector<UpdatePhase> phases;
  if (group > 1)
    phases.push_back(within_nodes(0, CollectiveKind::kReduceScatter, links, groups, gradients));
  phases.push_back(copies(1, /*is_out=*/true, links, groups, gradients / shards));
  // Between the members of one host nothing moves, so those phases pass no link.
  for (const CollectivePhase& each : across(CollectiveKind::kReduceScatter))
    if (!each.uses.empty()) phases.push_back({2, each, gradients * each.bytes_per_stream});
  phases.push_back(updates.phase(3, weights / job.bytes_per_parameter / hosts, links));
  for (const CollectivePhase& each : across(CollectiveKind::kAllGather))
    if (!each.uses.empty()) phases.push_back({4, each, weights * each.bytes_per_stream});
  phases.push_back(copies(5, /*is_out=*/false, links, groups, weights / shards));
  if (group > 1)
    phases.push_back(within_nodes(6, CollectiveKind::kAllGather, links, groups, weights));
  return phases;
}

}  // namespace spillway::planner
