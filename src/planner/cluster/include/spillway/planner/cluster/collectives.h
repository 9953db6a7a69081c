#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "spillway/planner/cluster/cluster_links.h"

namespace spillway::cluster {

enum class CollectiveKind : std::uint8_t { kAllReduce, kReduceScatter, kAllGather };

enum class CollectiveAlgorithm : std::uint8_t {
  kRing,          ///< As many rings as members per node, 64 at most, each by another card.
  kTree,          ///< Two binary trees, each of half the data; all-reduce only.
  kHierarchical,  ///< Within the nodes, then rings of the members of one number, then within again.
};

std::string_view to_string(CollectiveAlgorithm algorithm);

/// Streams that all move the same bytes at the same pace.
struct CollectivePhase {
  double bytes_per_stream = 0.0;  ///< For each byte of the buffer that is reduced.
  double latency_seconds = 0.0;   ///< Latency of all its rounds together.
  /// Of a stream from one member to the next: that of the mean time in rings, where a block meets
  /// every pair, else that of the slowest pair. On its way a block takes latencies and such times,
  /// at least; a link that is slower than the others hides the latency of these.
  TransferRate pair_rate = TransferRate::unlimited();
  std::vector<LinkUse> uses;  ///< Sorted by link.
};

/// What a collective puts on which links, for any size of buffer; without phases there is nothing
/// to do. A phase takes as long as its fullest link, but no less than a block on its way around.
/// Where all pairs are alike, with
///
/// n members, a latency α of a round (the mean of a ring's pairs, as blocks meet all of them; that
/// of the slowest pair in trees), a rate β of a stream, M bytes:
///
///     ring                     2(n − 1)α + 2 (n − 1)/n · M/β                  all-reduce
///                              (n − 1)α + (n − 1)/n · M/β                     the other two
///     tree                     2 ceil(log2 n) α + 2M/β
///     hierarchical, g of each  2(g − 1)α' + 2(N − 1)α + 2 (g − 1)/g · M/β' + 2 (N − 1)/N · M/(gβ)
///     of N nodes               (half of it for the other two)
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kRing;
  std::vector<CollectivePhase> phases;
};

/// Returns a collective by one algorithm, over members that are all different. Throws ConfigError
/// for one that does not exist for them: trees but for all-reduce, hierarchies of nodes with
/// unequal numbers of members.
Collective make_collective(CollectiveKind kind, CollectiveAlgorithm algorithm,
                           const ClusterLinks& links, std::span<const Endpoint> members);

/// Seconds on idle links.
double seconds_alone(const Collective& collective, const ClusterLinks& links, double bytes);

/// The one that takes least for this size on idle links, of those that exist.
Collective fastest_collective(CollectiveKind kind, const ClusterLinks& links,
                              std::span<const Endpoint> members, double bytes);

}  // namespace spillway::cluster
