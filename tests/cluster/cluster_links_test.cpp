#include "spillway/planner/cluster/cluster_links.h"

#include <gmock/gmock.h>

#include "small_clusters.h"
#include "spillway/base/error.h"

namespace spillway::cluster {
namespace {

using ::testing::ElementsAre;

constexpr auto kNvlink = LinkClass::kNvlink;
constexpr auto kPcie = LinkClass::kPcie;
constexpr auto kUplink = LinkClass::kUplink;
constexpr auto kNic = LinkClass::kNic;
constexpr auto kSpine = LinkClass::kSpine;

Endpoint host(std::uint32_t device) { return {device, true}; }

std::vector<LinkClass> way(const ClusterLinks& links, Endpoint from, Endpoint to) {
  std::vector<LinkClass> kinds;
  for (const LinkUse& use : links.route(from, to).uses) kinds.push_back(links.kind(use.link));
  return kinds;
}

TEST(ClusterLinks, LeadThroughNodes) {
  const ClusterLinks links(small_cluster(2, 4));
  EXPECT_THAT(way(links, {0}, {3}), ElementsAre(kNvlink, kNvlink));
  EXPECT_THAT(way(links, {0}, {0}), ElementsAre());
  EXPECT_THAT(way(links, {0}, host(0)), ElementsAre(kPcie, kUplink));
  EXPECT_THAT(way(links, host(3), {3}), ElementsAre(kUplink, kPcie));
  EXPECT_THAT(way(links, host(0), host(3)), ElementsAre());
  Cluster plain = small_cluster(2, 4);
  plain.node.nvlink.reset();
  const ClusterLinks without(plain);
  EXPECT_THAT(way(without, {0}, {1}), ElementsAre(kPcie, kPcie));
  EXPECT_THAT(way(without, {0}, {2}), ElementsAre(kPcie, kUplink, kUplink, kPcie));
}

TEST(ClusterLinks, LeadThroughTheNetwork) {
  const ClusterLinks links(small_cluster(8, 4));  // Two leaves of four nodes.
  EXPECT_THAT(way(links, {0}, {15}), ElementsAre(kPcie, kNic, kNic, kPcie));
  EXPECT_THAT(way(links, {0}, {16}), ElementsAre(kPcie, kNic, kSpine, kSpine, kNic, kPcie));
  EXPECT_THAT(way(links, host(0), host(4)), ElementsAre(kUplink, kNic, kNic, kUplink));
  Cluster single = small_cluster(8, 4);
  single.node.nics = 1;  // At the first switch: devices 2 and 3 reach it over the host.
  const ClusterLinks far(single);
  EXPECT_THAT(way(far, {2}, {4}), ElementsAre(kPcie, kUplink, kUplink, kNic, kNic, kPcie));
}

TEST(ClusterLinks, KeepRailsApart) {
  Cluster cluster = small_cluster(8, 4);
  cluster.network.nodes_per_leaf = 8;
  cluster.network.has_rails = true;
  const ClusterLinks links(cluster);
  EXPECT_THAT(way(links, {0}, {5}), ElementsAre(kPcie, kNic, kNic, kPcie));
  EXPECT_THAT(way(links, {0}, {6}), ElementsAre(kPcie, kNic, kSpine, kSpine, kNic, kPcie));
}

TEST(ClusterLinks, HaveTheRatesOfTheDescription) {
  Cluster cluster = small_cluster(8, 4);
  cluster.network.oversubscription = 4.0;
  cluster.network.switch_latency_seconds = 1.0;
  cluster.node.nic.latency_seconds = 10.0;
  cluster.node.pcie.latency_seconds = 100.0;
  const ClusterLinks links(cluster);
  const Route route = links.route({0}, {31});
  EXPECT_DOUBLE_EQ(links.rate(route.uses[1].link), 20.0);
  EXPECT_DOUBLE_EQ(links.rate(route.uses[2].link), 4 * 2 * 20.0 / 4.0);
  EXPECT_DOUBLE_EQ(route.latency_seconds, 2 * 100.0 + 10.0 + 3 * 1.0);
  EXPECT_DOUBLE_EQ(links.rate(links.disk_route(0, true).uses.back().link), 2.0);
  EXPECT_DOUBLE_EQ(links.rate(links.disk_route(0, false).uses.back().link), 4.0);
  EXPECT_DOUBLE_EQ(links.rate(links.update_route(5).uses.back().link), 50.0);
}

TEST(ClusterLinks, NeedWhatAJobAsksFor) {
  Cluster cluster = small_cluster(1, 4);
  cluster.node.disks = 0;
  cluster.node.host_update_parameters_per_second = 0.0;
  const ClusterLinks links(cluster);
  EXPECT_THROW(links.disk_route(0, true), ConfigError);
  EXPECT_THROW(links.update_route(0), ConfigError);
}

}  // namespace
}  // namespace spillway::cluster
