#include "spillway/planner/cluster/collectives.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <utility>

#include "spillway/base/error.h"

namespace spillway::cluster {
namespace {

/// Streams between pairs of endpoints, added up by link.
class Streams {
 public:
  explicit Streams(const ClusterLinks& links) : links_(links) {}

  void add(Endpoint from, Endpoint to) {
    const Route route = links_.route(from, to);
    for (const LinkUse& use : route.uses) {
      uses_[use.link] += use.streams;
      // Which links a pair passes is kept, as its rate is known when all streams are there.
      pair_links_.push_back(use.link);
    }
    pair_ends_.push_back(pair_links_.size());
    slowest_ = std::max(slowest_, route.latency_seconds);
    latencies_ += route.latency_seconds;
  }
  void add_ring(std::span<const Endpoint> members) {
    for (std::size_t i = 0; i < members.size(); ++i)
      add(members[i], members[(i + 1) % members.size()]);
  }

  double slowest_pair() const { return slowest_; }
  /// In a ring, a block meets every pair: what is late between two nodes is early within them.
  double mean_pair() const { return latencies_ / pair_count(); }

  /// Around a ring.
  CollectivePhase ring_phase(double bytes_per_stream, double rounds) const {
    const auto [mean, slowest] = pair_rates();
    return phase(bytes_per_stream, rounds * mean_pair(), mean);
  }
  CollectivePhase tree_phase(double bytes_per_stream, double rounds) const {
    // The levels of a tree wait for each other, and the slowest pair is on some way through it.
    const auto [mean, slowest] = pair_rates();
    return phase(bytes_per_stream, rounds * slowest_pair(), slowest);
  }

 private:
  double pair_count() const {
    return static_cast<double>(std::max<std::size_t>(pair_ends_.size(), 1));
  }
  /// Between the members of a pair, while all streams run: of the mean time, and the slowest.
  std::pair<TransferRate, TransferRate> pair_rates() const {
    double sum = 0.0;  // Seconds of a byte.
    TransferRate slowest = TransferRate::unlimited();
    std::size_t at = 0;
    for (const std::size_t end : pair_ends_) {
      TransferRate rate = TransferRate::unlimited();
      for (; at < end; ++at)
        rate =
            std::min(rate, TransferRate(links_.rate(pair_links_[at]) / uses_.at(pair_links_[at])));
      sum += rate.seconds_for(1.0);
      slowest = std::min(slowest, rate);
    }
    return {TransferRate(pair_count() / sum), slowest};
  }
  CollectivePhase phase(double bytes_per_stream, double latency, TransferRate pair_rate) const {
    CollectivePhase phase{bytes_per_stream, latency, pair_rate, {}};
    for (const auto& [link, streams] : uses_) phase.uses.push_back({link, streams});
    return phase;
  }

  const ClusterLinks& links_;
  std::map<std::uint32_t, double> uses_;
  std::vector<std::uint32_t> pair_links_;  // Of each pair, one behind the other.
  std::vector<std::size_t> pair_ends_;     // Where those of a pair end.
  double slowest_ = 0.0;
  double latencies_ = 0.0;
};

using Group = std::vector<Endpoint>;

/// By node, in the order of their devices.
std::vector<Group> nodes_of(const ClusterLinks& links, std::span<const Endpoint> members) {
  std::map<std::uint32_t, Group> nodes;
  for (const Endpoint& each : members) nodes[links.node_of(each.device)].push_back(each);
  std::vector<Group> groups;
  for (auto& [node, group] : nodes) {
    std::sort(group.begin(), group.end(),
              [](const Endpoint& a, const Endpoint& b) { return a.device < b.device; });
    groups.push_back(std::move(group));
  }
  return groups;
}

/// 0 where they differ.
std::size_t members_per_node(const std::vector<Group>& nodes) {
  for (const Group& group : nodes)
    if (group.size() != nodes.front().size()) return 0;
  return nodes.front().size();
}

/// More of them than a node has cards gain nothing, and nodes may have a thousand members; NCCL
/// has a limit like that, too.
constexpr std::size_t kMostRings = 64;

/// Rings of all members. Each enters a node at another member, so that all network cards are used,
/// and at the number at which it left the node before, which keeps it on one rail.
Streams rings(const ClusterLinks& links, const std::vector<Group>& nodes, std::size_t count) {
  Streams streams(links);
  for (std::size_t ring = 0; ring < count; ++ring) {
    Group order;
    std::size_t first = ring;
    for (const Group& group : nodes) {
      for (std::size_t i = 0; i < group.size(); ++i)
        order.push_back(group[(first + i) % group.size()]);
      first += group.size() - 1;
    }
    streams.add_ring(order);
  }
  return streams;
}

/// The parent of a place in a binary tree over the places from 0 on, in which all odd places are
/// leaves: at the height of its lowest set bit, the neighbour one higher.
std::size_t parent_of(std::size_t place, std::size_t count) {
  const std::size_t bit = place & (~place + 1);
  const std::size_t above = (place ^ bit) | (bit << 1U);
  return above < count ? above : place ^ bit;
}

/// Two trees; who is a leaf in one of them is none in the other, so everybody sends and receives
/// about the same (Sanders, Speck, Träff 2009; NCCL 2.4).
Streams trees(const ClusterLinks& links, const std::vector<Group>& nodes) {
  Group order;
  for (const Group& group : nodes) order.insert(order.end(), group.begin(), group.end());
  const std::size_t n = order.size();
  Streams streams(links);
  for (const bool is_second : {false, true})
    for (std::size_t place = 1; place < n; ++place) {
      const auto member = [&](std::size_t at) {
        if (!is_second) return order[at];
        return n % 2 == 0 ? order[n - 1 - at] : order[(at + 1) % n];
      };
      const std::size_t parent = parent_of(place, n);
      streams.add(member(place), member(parent));
      streams.add(member(parent), member(place));
    }
  return streams;
}

std::vector<CollectivePhase> hierarchical_phases(CollectiveKind kind, const ClusterLinks& links,
                                                 const std::vector<Group>& nodes,
                                                 std::size_t group) {
  const auto g = static_cast<double>(group);
  const auto count = static_cast<double>(nodes.size());
  Streams inside(links);
  for (const Group& each : nodes)
    if (group > 1) inside.add_ring(each);
  Streams across(links);
  for (std::size_t i = 0; i < group && nodes.size() > 1; ++i) {
    Group ring;
    for (const Group& each : nodes) ring.push_back(each[i]);
    across.add_ring(ring);
  }
  // A sum for all is a scattered sum and a gathering, each once around.
  const double turns = kind == CollectiveKind::kAllReduce ? 2.0 : 1.0;
  const CollectivePhase within = inside.ring_phase((g - 1.0) / g, g - 1.0);
  // Each member of a node has its share of the node's sum, and its own ring to the other nodes. So
  // all cards work.
  const CollectivePhase between =
      across.ring_phase(turns * (count - 1.0) / count / g, turns * (count - 1.0));
  std::vector<CollectivePhase> phases;
  if (group > 1 && kind != CollectiveKind::kAllGather) phases.push_back(within);
  if (nodes.size() > 1) phases.push_back(between);
  if (group > 1 && kind != CollectiveKind::kReduceScatter) phases.push_back(within);
  return phases;
}

std::optional<Collective> try_collective(CollectiveKind kind, CollectiveAlgorithm algorithm,
                                         const ClusterLinks& links,
                                         std::span<const Endpoint> members) {
  Collective collective{kind, algorithm, {}};
  // One member has its sum already.
  if (members.size() < 2) return collective;
  const std::vector<Group> nodes = nodes_of(links, members);
  const std::size_t group = members_per_node(nodes);
  const auto n = static_cast<double>(members.size());
  const double turns = kind == CollectiveKind::kAllReduce ? 2.0 : 1.0;
  switch (algorithm) {
    case CollectiveAlgorithm::kRing: {
      // Nodes of unequal numbers share one ring: a second one could not enter each node elsewhere.
      const std::size_t count = std::clamp<std::size_t>(group, 1, kMostRings);
      const Streams streams = rings(links, nodes, count);
      collective.phases = {streams.ring_phase(turns * (n - 1.0) / n / static_cast<double>(count),
                                              turns * (n - 1.0))};
      break;
    }
    case CollectiveAlgorithm::kTree: {
      // A tree brings everything to its root, which is what the other two avoid.
      if (kind != CollectiveKind::kAllReduce) return std::nullopt;
      const Streams streams = trees(links, nodes);
      const auto levels = static_cast<double>(std::bit_width(members.size() - 1));
      collective.phases = {streams.tree_phase(0.5, 2.0 * levels)};
      break;
    }
    case CollectiveAlgorithm::kHierarchical:
      // Rings between nodes need a member of each number in every node.
      if (group == 0) return std::nullopt;
      collective.phases = hierarchical_phases(kind, links, nodes, group);
      break;
  }
  return collective;
}

}  // namespace

std::string_view to_string(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case CollectiveAlgorithm::kRing: return "ring";
    case CollectiveAlgorithm::kTree: return "tree";
    case CollectiveAlgorithm::kHierarchical: break;
  }
  return "hierarchical";
}

Collective make_collective(CollectiveKind kind, CollectiveAlgorithm algorithm,
                           const ClusterLinks& links, std::span<const Endpoint> members) {
  auto collective = try_collective(kind, algorithm, links, members);
  if (collective) return std::move(*collective);
  if (algorithm == CollectiveAlgorithm::kTree)
    throw ConfigError("a tree serves all-reduce alone (use a ring or a hierarchy)");
  throw ConfigError(
      "a hierarchy needs as many of the {} members in each node (use a ring or a tree)",
      members.size());
}

double seconds_alone(const Collective& collective, const ClusterLinks& links, double bytes) {
  double seconds = 0.0;
  for (const CollectivePhase& phase : collective.phases) {
    double slowest = 0.0;
    for (const LinkUse& use : phase.uses)
      slowest = std::max(slowest, use.streams / links.rate(use.link));
    const double of_stream = phase.bytes_per_stream * bytes;
    seconds += std::max(slowest * of_stream,
                        phase.latency_seconds + phase.pair_rate.seconds_for(of_stream));
  }
  return seconds;
}

Collective fastest_collective(CollectiveKind kind, const ClusterLinks& links,
                              std::span<const Endpoint> members, double bytes) {
  std::optional<Collective> best;
  for (const auto algorithm : {CollectiveAlgorithm::kRing, CollectiveAlgorithm::kTree,
                               CollectiveAlgorithm::kHierarchical}) {
    auto next = try_collective(kind, algorithm, links, members);
    if (!next) continue;
    if (!best || seconds_alone(*next, links, bytes) < seconds_alone(*best, links, bytes))
      best = std::move(next);
  }
  return std::move(*best);  // A ring exists always.
}

}  // namespace spillway::cluster
