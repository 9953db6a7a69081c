#include "spillway/planner/machine/machine_share.h"

#include <gmock/gmock.h>

#include "million_byte_cluster.h"
#include "spillway/base/error.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::machine {
namespace {

constexpr auto kHost = cluster::SwapTarget::kHost;

// Nodes of four devices with NVLink of 100; two devices share an uplink of 10.
TEST(ShareOf, HasTheSlowestWayBetweenStages) {
  cluster::Cluster cluster = cluster::small_cluster(2, 4);
  EXPECT_DOUBLE_EQ(share_of(cluster, 8, 2, kHost).peer.rate.bytes_per_second(), 100.0);
  EXPECT_DOUBLE_EQ(share_of(cluster, 8, 1, kHost).peer.rate.bytes_per_second(), 10.0)
      << "between nodes";
  cluster.node.nvlink->latency_seconds = 0.25;
  cluster.node.nic.latency_seconds = 0.5;
  EXPECT_DOUBLE_EQ(share_of(cluster, 4, 1, kHost).peer.latency_seconds, 0.25);
  EXPECT_DOUBLE_EQ(share_of(cluster, 8, 1, kHost).peer.latency_seconds, 0.5);
  // Of the second pipeline of three, a message leaves the node.
  EXPECT_DOUBLE_EQ(share_of(cluster, 3, 1, kHost).peer.rate.bytes_per_second(), 100.0);
  EXPECT_DOUBLE_EQ(share_of(cluster, 6, 2, kHost).peer.rate.bytes_per_second(), 10.0);
}

TEST(ShareOf, SharesUplinksAndDisks) {
  const cluster::Cluster cluster = cluster::small_cluster(2, 4);
  EXPECT_DOUBLE_EQ(share_of(cluster, 1, 1, kHost).swap_rate.bytes_per_second(), 10.0);
  EXPECT_DOUBLE_EQ(share_of(cluster, 8, 1, kHost).swap_rate.bytes_per_second(), 5.0);
  EXPECT_DOUBLE_EQ(share_of(cluster, 8, 1, cluster::SwapTarget::kDisk).swap_rate.bytes_per_second(),
                   2.0 / 4);
  EXPECT_DOUBLE_EQ(share_of(cluster, 2, 1, cluster::SwapTarget::kDisk).swap_rate.bytes_per_second(),
                   2.0 / 2);
  cluster::Cluster without = cluster;
  without.node.disks = 0;
  EXPECT_THROW(share_of(without, 8, 1, cluster::SwapTarget::kDisk), ConfigError);
}

/// What a ring of `data_parallel` takes for so many bytes.
double ring_seconds(const LinkCosts& link, double data_parallel, double bytes) {
  return 2 * (data_parallel - 1) *
         (link.latency_seconds + bytes / data_parallel / link.rate.bytes_per_second());
}

TEST(ShareOf, SumsAsFastAsTheFastestCollective) {
  cluster::Cluster cluster = million_byte_cluster(4, 4);
  std::vector<cluster::Endpoint> members;
  for (std::uint32_t device = 0; device < 16; ++device) members.push_back({device});
  const auto expected = [&](double bytes) {
    const cluster::ClusterLinks links(cluster);
    return cluster::seconds_alone(
        cluster::fastest_collective(cluster::CollectiveKind::kAllReduce, links, members, 100e6),
        links, bytes);
  };
  LinkCosts link = share_of(cluster, 16, 16, kHost).reduce;
  EXPECT_NEAR(ring_seconds(link, 16, 100e6), expected(100e6), 1e-6 * expected(100e6));
  cluster.node.nvlink->latency_seconds = 1e-3;
  cluster.node.nic.latency_seconds = 2e-3;
  link = share_of(cluster, 16, 16, kHost).reduce;
  EXPECT_NEAR(ring_seconds(link, 16, 0.0), expected(0.0), 1e-9);
  // Slow pairs hide the latencies of others, which a link of its own does not.
  EXPECT_GE(ring_seconds(link, 16, 100e6), expected(100e6));
  EXPECT_LE(ring_seconds(link, 16, 100e6), expected(100e6) + expected(0.0));
}

// Four stages on a node: their sums pass the same two cards, each of which is as fast as a device.
TEST(ShareOf, SumsOfANodeShareItsCards) {
  cluster::Cluster cluster = million_byte_cluster(4, 4);
  cluster.node.nic = cluster.node.pcie;
  std::vector<cluster::Endpoint> members;
  for (std::uint32_t node = 0; node < 4; ++node) members.push_back({4 * node});
  const cluster::ClusterLinks links(cluster);
  const double alone = cluster::seconds_alone(
      cluster::fastest_collective(cluster::CollectiveKind::kAllReduce, links, members, 100e6),
      links, 100e6);
  const MachineShare share = share_of(cluster, 16, 4, kHost);
  EXPECT_NEAR(ring_seconds(share.reduce, 4, 100e6), alone, 1e-6 * alone);
  EXPECT_EQ(share.shared_sums.ranks, 2U);
  const LinkCosts shared{0.0, share.shared_sums.rate};
  EXPECT_NEAR(2.0 * ring_seconds(shared, 4, 100e6), 2.0 * alone, 1e-6 * alone);
}

TEST(ShareOf, SumsShareWhatIsFullest) {
  cluster::Cluster cluster = million_byte_cluster(4, 4);
  const auto sharing = [&](std::uint32_t ranks, std::uint32_t data_parallel) {
    return share_of(cluster, ranks, data_parallel, kHost).shared_sums.ranks;
  };
  cluster.node.nic = cluster.node.pcie;
  EXPECT_EQ(sharing(16, 2), 2U) << "four nodes, two of a pipeline";
  cluster.node.nics = 1;
  EXPECT_EQ(sharing(16, 4), 4U);
  EXPECT_EQ(sharing(16, 2), 4U);
  EXPECT_EQ(sharing(12, 4), 3U) << "the second pipeline begins in the middle of a node";
}

TEST(ShareOf, RefusesMoreRanksThanDevices) {
  GoldenPart golden;
  golden.add(
      error_text<ConfigError>([&] { share_of(cluster::small_cluster(2, 4), 16, 1, kHost); }));
}

TEST(RequestOn, TakesMemoryAndSpeedOfTheDevices) {
  job::JobRequest request = job::even_job(8, 4, 8, "1f1b");
  request.update_seconds = 4.0;
  cluster::Cluster cluster = million_byte_cluster(1, 4);
  EXPECT_EQ(request_on(request, cluster, 1, kHost).device_memory, Bytes(10'000 * job::kMega));
  EXPECT_DOUBLE_EQ(request_on(request, cluster, 1, kHost).chain.layers[0].forward_seconds, 1.0);
  request.device_memory = Bytes(1'000 * job::kMega);
  cluster.device.speed_over_profile = 4.0;
  const job::JobRequest on = request_on(request, cluster, 1, kHost);
  EXPECT_EQ(on.device_memory, Bytes(1'000 * job::kMega));
  EXPECT_DOUBLE_EQ(on.chain.layers[0].forward_seconds, 0.25);
  EXPECT_DOUBLE_EQ(on.chain.layers[0].backward_seconds, 0.5);
  EXPECT_DOUBLE_EQ(on.chain.layers[0].recompute[0].seconds, 0.125);
  EXPECT_DOUBLE_EQ(on.update_seconds, 1.0);
}

}  // namespace
}  // namespace spillway::machine
