#include "spillway/planner/cluster/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <random>

#include "small_clusters.h"
#include "spillway/base/error.h"
#include "support/golden_part.h"

namespace spillway::cluster {
namespace {

std::string fault_of(const std::function<void(Cluster&)>& change) {
  Cluster cluster = small_cluster(4, 4);
  change(cluster);
  try {
    check_cluster(cluster);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no fault";
}

TEST(CheckCluster, AcceptsASoundOne) {
  EXPECT_EQ(fault_of([](Cluster&) {}), "no fault");
}

TEST(CheckCluster, RefusesNodesThatNothingConnects) {
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.node.nics = 0; }),
            "cluster small: 4 nodes have no network card that connects them (give nics 1 or more, "
            "or nodes 1)");
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.network.nodes_per_leaf = 0; }),
            "cluster small: a leaf switch connects no node (give nodes_per_leaf 1 or more)");
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.nodes = 1, cluster.node.nics = 0; }),
            "no fault");
}

TEST(CheckCluster, RefusesLinksThatCarryNothing) {
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.node.nvlink->rate = TransferRate(0.0); }),
            "cluster small: the NVLink of a device cannot carry 0 bytes/s (give 1 to 1e+18)");
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.node.uplink.rate = TransferRate(-3.0); }),
            "cluster small: the uplink of a PCIe switch cannot carry -3 bytes/s (give 1 to "
            "1e+18)");
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.node.disk_write_rate = TransferRate(0.0); }),
            "cluster small: writing to a disk cannot carry 0 bytes/s (give 1 to 1e+18)");
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.node.nic.latency_seconds = -1.0; }),
            "cluster small: the latency of a network card cannot be -1 s (give 0 to "
            "1e+12)");
}

// Such figures made sums of times infinite, and a job that ends was said to stand still.
TEST(CheckCluster, RefusesFiguresThatNoMachineHas) {
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.node.pcie.rate = TransferRate(1e-305); }),
            "cluster small: the PCIe link of a device cannot carry 1e-305 bytes/s (give 1 to "
            "1e+18)");
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.node.nic.latency_seconds = 1e300; }),
            "cluster small: the latency of a network card cannot be 1e+300 s (give 0 to 1e+12)");
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.node.disks = 4'000'000'000; }),
            "cluster small: a node cannot have 4000000000 disks (give 0 to 1024)");
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.nodes = 1, cluster.node.devices = 65536; }),
            "cluster small: a node cannot have 65536 devices (give 1 to 1024, and more nodes)");
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.stragglers.spread = 1e10; }),
            "cluster small: stragglers cannot be slower by 1e+10 (give 0 to 1000)");
  EXPECT_EQ(fault_of([](Cluster& cluster) {
              cluster.failures = {.node_mean_seconds = 1e-310, .checkpoint_interval_seconds = 60.0};
            }),
            "cluster small: the time between failures cannot be 1e-310 s (give 0, or 1 to 1e+12)");
}

// Any speed above 0 was taken, and times of the profile are divided by it.
TEST(CheckCluster, RefusesSpeedsThatNoDeviceHas) {
  GoldenPart golden;
  const auto fault_at = [](double speed) {
    return fault_of([=](Cluster& cluster) { cluster.device.speed_over_profile = speed; });
  };
  for (const double speed : {0.0, 1e-3, 1.0, 1e3}) EXPECT_EQ(fault_at(speed), "no fault") << speed;
  for (const double speed : {1e300, 1e-300, 9e-4, 1001.0, -1.0, std::nan(""), HUGE_VAL})
    golden.add(fault_at(speed));
}

TEST(CheckCluster, RefusesDevicesWithoutMemory) {
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.device.memory = Bytes(0); }),
            "cluster small: the memory of a device cannot be 0 B (give 1 B or more)");
}

TEST(CheckCluster, RefusesCountsThatFitNothing) {
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.node.devices_per_switch = 5; }),
            "cluster small: 5 of the 4 devices of a node cannot share a PCIe switch (give 1 to 4)");
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.nodes = 0; }),
            "cluster small: it has no node (give 1)");
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.network.oversubscription = 0.5; }),
            "cluster small: an oversubscription of 0.5 is none (give 1 to 1000)");
  EXPECT_EQ(fault_of([](Cluster& cluster) { cluster.failures.node_mean_seconds = 9.0; }),
            "cluster small: nodes fail each 9 s, and no checkpoint is taken (give "
            "checkpoint_interval_seconds)");
}

TEST(DeviceSlowdowns, AreTheSameForASeedAndFollowTheirLaw) {
  Cluster cluster = small_cluster(5000, 4);
  cluster.stragglers = {.law = StragglerLaw::kExponential, .spread = 0.1, .seed = 5};
  const std::vector<double> slowdowns = device_slowdowns(cluster);
  EXPECT_EQ(slowdowns, device_slowdowns(cluster));
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  EXPECT_NEAR(mean(slowdowns), 1.1, 0.003);
  cluster.stragglers.law = StragglerLaw::kUniform;
  EXPECT_NEAR(mean(device_slowdowns(cluster)), 1.05, 0.002);
  cluster.stragglers.law = StragglerLaw::kHalfNormal;
  EXPECT_NEAR(mean(device_slowdowns(cluster)), 1.0 + 0.1 * std::sqrt(2.0 / std::numbers::pi),
              0.003);
  cluster.stragglers.seed = 6;
  EXPECT_NE(slowdowns, device_slowdowns(cluster));
}

TEST(DeviceSlowdowns, CanBeOfWholeNodesAndOfFew) {
  Cluster cluster = small_cluster(1000, 4);
  cluster.stragglers = {
      .law = StragglerLaw::kUniform, .spread = 1.0, .share = 0.1, .is_by_node = true};
  const std::vector<double> slowdowns = device_slowdowns(cluster);
  int slow = 0;
  for (std::size_t node = 0; node < 1000; ++node) {
    for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(slowdowns[4 * node + i], slowdowns[4 * node]);
    slow += slowdowns[4 * node] > 1.0 ? 1 : 0;
  }
  EXPECT_NEAR(slow, 100, 35);
}

/// Work, checkpoints, failures and restarts one after the other, as they come.
double simulated_share(const Failures& failures, std::uint32_t nodes) {
  std::mt19937_64 random(3);
  const double mean = failures.node_mean_seconds / nodes;
  const double segment = failures.checkpoint_interval_seconds + failures.checkpoint_seconds;
  double seconds = 0.0;
  const auto fails_within = [&](double span) {
    const double uniform = (static_cast<double>(random() >> 12U) + 0.5) * 0x1p-52;
    const double failure = -mean * std::log(uniform);
    seconds += std::min(failure, span);
    return failure < span;
  };
  constexpr int kSegments = 100'000;
  for (int i = 0; i < kSegments; ++i)
    while (fails_within(segment))
      while (fails_within(failures.restart_seconds)) {
      }
  return kSegments * failures.checkpoint_interval_seconds / seconds;
}

TEST(UsefulShare, IsWhatASimulationFinds) {
  const Failures failures{.node_mean_seconds = 1e6,
                          .checkpoint_interval_seconds = 600.0,
                          .checkpoint_seconds = 30.0,
                          .restart_seconds = 120.0};
  for (const std::uint32_t nodes : {1U, 100U, 1000U})
    EXPECT_NEAR(useful_share(failures, nodes), simulated_share(failures, nodes), 0.01) << nodes;
  EXPECT_LT(useful_share(failures, 1000), 0.7);
  // Restarts that fail themselves: with e^{λR} = 1.82 of them for each failure, not 1 + λR = 1.6.
  Failures slow = failures;
  slow.restart_seconds = 600.0;
  EXPECT_NEAR(useful_share(slow, 1000), simulated_share(slow, 1000), 0.01);
  slow.restart_seconds = 1e9;
  EXPECT_DOUBLE_EQ(useful_share(slow, 1000), 0.0);
  EXPECT_DOUBLE_EQ(useful_share({}, 1000), 1.0);
}

TEST(BestCheckpointInterval, IsBetterThanItsNeighbours) {
  Failures failures{.node_mean_seconds = 3e6,
                    .checkpoint_interval_seconds = 1.0,
                    .checkpoint_seconds = 20.0,
                    .restart_seconds = 60.0};
  for (const std::uint32_t nodes : {1U, 512U, 4096U}) {
    const double best = best_checkpoint_interval(failures, nodes);
    const auto share_at = [&](double interval) {
      failures.checkpoint_interval_seconds = interval;
      return useful_share(failures, nodes);
    };
    EXPECT_GT(share_at(best), share_at(0.99 * best)) << nodes;
    EXPECT_GT(share_at(best), share_at(1.01 * best)) << nodes;
    // Young's rule of thumb, which counts few failures in a segment.
    if (nodes == 1) {
      EXPECT_NEAR(best, std::sqrt(2.0 * 20.0 * 3e6), 0.01 * best);
    }
  }
}

}  // namespace
}  // namespace spillway::cluster
