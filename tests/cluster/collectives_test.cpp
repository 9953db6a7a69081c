#include "spillway/planner/cluster/collectives.h"

#include <gmock/gmock.h>

#include <cmath>

#include "small_clusters.h"
#include "spillway/base/error.h"

namespace spillway::cluster {
namespace {

constexpr auto kAllReduce = CollectiveKind::kAllReduce;
constexpr auto kRing = CollectiveAlgorithm::kRing;
constexpr auto kTree = CollectiveAlgorithm::kTree;
constexpr auto kHierarchical = CollectiveAlgorithm::kHierarchical;

std::vector<Endpoint> devices(std::uint32_t count) {
  std::vector<Endpoint> members;
  for (std::uint32_t i = 0; i < count; ++i) members.push_back({i});
  return members;
}

/// One device, one card and nothing slower than it in a node.
Cluster flat(std::uint32_t nodes) {
  Cluster cluster = small_cluster(nodes, 1);
  cluster.node.nics = 1;
  cluster.node.pcie = {0.0, TransferRate(1000.0)};
  cluster.node.nic = {0.25, TransferRate(20.0)};
  cluster.network.nodes_per_leaf = nodes;
  return cluster;
}

double seconds(const ClusterLinks& links, CollectiveKind kind, CollectiveAlgorithm algorithm,
               std::uint32_t members, double bytes) {
  return seconds_alone(make_collective(kind, algorithm, links, devices(members)), links, bytes);
}

TEST(Collectives, RingsTakeWhatTheFormulaSays) {
  for (const std::uint32_t n : {2U, 3U, 7U, 64U}) {
    const ClusterLinks links(flat(n));
    const double share = (n - 1.0) / n;
    EXPECT_DOUBLE_EQ(seconds(links, kAllReduce, kRing, n, 1000.0),
                     2 * (n - 1) * 0.25 + 2 * share * 1000.0 / 20.0);
    EXPECT_DOUBLE_EQ(seconds(links, CollectiveKind::kAllGather, kRing, n, 1000.0),
                     (n - 1) * 0.25 + share * 1000.0 / 20.0);
  }
}

// Each of the 2·7 rounds moves every block one pair further: over NVLink, or to the other node.
TEST(Collectives, RingsMeetAllLatencies) {
  Cluster cluster = small_cluster(2, 4);
  cluster.node.nvlink->latency_seconds = 0.5;
  cluster.node.nic.latency_seconds = 2.0;
  const ClusterLinks links(cluster);
  EXPECT_NEAR(seconds(links, kAllReduce, kRing, 8, 0.0), 14 * (6 * 0.5 + 2 * 2.0) / 8, 1e-9);
}

// Blocks queue before the slowest pair, and are on their way elsewhere meanwhile.
TEST(Collectives, SlowPairsHideLatencies) {
  Cluster cluster = small_cluster(2, 4);
  cluster.network.nodes_per_leaf = 2;
  cluster.node.nvlink = LinkCosts{0.5, TransferRate(1e9)};
  const ClusterLinks links(cluster);
  // A quarter of the bytes in each ring, 14 blocks of an eighth of it; rings share PCIe at 10.
  const double slow = 14.0 / 8 * 4000.0 / 4 / 10.0;
  EXPECT_NEAR(seconds(links, kAllReduce, kRing, 8, 4000.0), slow, 1e-3);
  const double around = 14 * 6 * 0.5 / 8 + 2.0 / 8 * 14.0 / 8 * 40.0 / 4 / 10.0;
  EXPECT_NEAR(seconds(links, kAllReduce, kRing, 8, 40.0), around, 1e-3);
}

TEST(Collectives, TreesTakeWhatTheFormulaSays) {
  for (const std::uint32_t n : {4U, 8U, 9U, 64U, 1000U}) {
    const ClusterLinks links(flat(n));
    const double expected = 2 * std::ceil(std::log2(n)) * 0.25 + 2 * 1000.0 / 20.0;
    EXPECT_NEAR(seconds(links, kAllReduce, kTree, n, 1000.0), expected, 1e-9) << n;
  }
}

TEST(Collectives, HierarchiesTakeWhatTheFormulaSays) {
  Cluster cluster = small_cluster(8, 4);
  cluster.network.nodes_per_leaf = 8;
  cluster.node.nvlink->latency_seconds = 0.01;
  cluster.node.nic.latency_seconds = 0.5;
  const ClusterLinks links(cluster);
  // Two of four devices share a card of 20, each behind PCIe of 10: 10 for each.
  const double expected =
      2 * 3 * 0.01 + 2 * 0.75 * 1000.0 / 100.0 + 2 * 7 * 0.5 + 2 * 7.0 / 8 * 1000.0 / 4 / 10.0;
  EXPECT_NEAR(seconds(links, kAllReduce, kHierarchical, 32, 1000.0), expected, 1e-9);
  // Half of it, in either direction.
  EXPECT_NEAR(seconds(links, CollectiveKind::kReduceScatter, kHierarchical, 32, 1000.0),
              expected / 2, 1e-9);
}

TEST(Collectives, RingsUseEveryCardAndKeepToTheirRails) {
  Cluster cluster = small_cluster(8, 4);
  cluster.node.nics = 4;
  cluster.network.nodes_per_leaf = 8;
  cluster.network.has_rails = true;
  const ClusterLinks links(cluster);
  const Collective ring = make_collective(kAllReduce, kRing, links, devices(32));
  ASSERT_EQ(ring.phases.size(), 1U);
  std::uint32_t cards = 0;
  for (const LinkUse& use : ring.phases[0].uses) {
    cards += links.kind(use.link) == LinkClass::kNic ? 1 : 0;
    EXPECT_NE(links.kind(use.link), LinkClass::kSpine);
  }
  EXPECT_EQ(cards, 2U * 32U);
}

TEST(Collectives, ChooseByTheSize) {
  const ClusterLinks links(flat(64));
  EXPECT_EQ(fastest_collective(kAllReduce, links, devices(64), 1.0).algorithm, kTree);
  EXPECT_EQ(fastest_collective(kAllReduce, links, devices(64), 1e6).algorithm, kRing);
  Cluster nodes = small_cluster(64, 4);
  nodes.node.nic.latency_seconds = 0.25;
  nodes.node.nvlink = LinkCosts{0.25, TransferRate(1e6)};
  const ClusterLinks fat(nodes);
  EXPECT_EQ(fastest_collective(kAllReduce, fat, devices(256), 1e3).algorithm, kHierarchical);
}

TEST(Collectives, RefuseWhatDoesNotExist) {
  const ClusterLinks links(small_cluster(4, 4));
  EXPECT_THROW(make_collective(CollectiveKind::kAllGather, kTree, links, devices(8)), ConfigError);
  EXPECT_THROW(make_collective(kAllReduce, kHierarchical, links, devices(7)), ConfigError);
  EXPECT_TRUE(make_collective(kAllReduce, kRing, links, devices(1)).phases.empty());
  EXPECT_NE(fastest_collective(kAllReduce, links, devices(7), 1e6).algorithm, kHierarchical);
}

// As many rings as members of a node would be a million routes here, and a thousand times that for
// a node of 65,536 devices.
TEST(Collectives, HaveSixtyFourRingsAtMost) {
  const ClusterLinks links(small_cluster(1, 1024));
  const Collective ring = make_collective(kAllReduce, kRing, links, devices(1024));
  for (const LinkUse& use : ring.phases[0].uses) EXPECT_EQ(use.streams, 64.0);
  EXPECT_NEAR(seconds_alone(ring, links, 1000.0), 2 * 1023.0 / 1024 * 1000.0 / 100.0, 1e-9);
}

}  // namespace
}  // namespace spillway::cluster
