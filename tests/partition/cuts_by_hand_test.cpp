// Cuts of small chains that one can reckon by hand.
#include <gmock/gmock.h>
#include <array>

#include <algorithm>
#include <limits>

#include "random_problems.h"

namespace spillway::partition {
namespace {

ModelLayer plain(double seconds, std::uint64_t stash) {
  ModelLayer layer;
  layer.name = "l";
  layer.forward_seconds = seconds;
  layer.backward_seconds = 0.0;
  layer.stash = Bytes(stash);
  return layer;
}

TEST(LeastMemoryCuts, AreRightWhereFillingFromTheLeftIsWrong) {
  // Filled up to 60 bytes, the first stage ends before the last layer, which then receives 100
  // more.
  PartitionProblem problem;
  problem.chain.layers = {plain(1, 20), plain(1, 20), plain(1, 20), plain(1, 40)};
  problem.chain.borders = {{2, {3}, Bytes(100)}};
  problem.devices.resize(2);
  const auto solved = least_memory_cuts(SegmentCosts(problem), 100.0);
  ASSERT_TRUE(solved);
  EXPECT_EQ(solved->worst, 60.0);
  EXPECT_THAT(solved->cuts, ::testing::ElementsAre(0, 2, 4));
}

TEST(LeastMemoryCuts, AnEarlyLargeLayerWaitsForAStageThatHoldsIt) {
  // The first two stages hold five micro-batches, too many of the large layer's. Filled from the
  // left, the first takes both small layers, and the second has nothing but the large one to take.
  PartitionProblem problem;
  problem.chain.layers = {plain(1, 2), plain(1, 2), plain(1, 50), plain(1, 1), plain(1, 1)};
  problem.devices = {{.held = {5}}, {.held = {5}}, {}, {}};
  const auto solved = least_memory_cuts(SegmentCosts(problem), 100.0);
  ASSERT_TRUE(solved);
  EXPECT_EQ(solved->worst, 50.0);
  EXPECT_THAT(solved->cuts, ::testing::ElementsAre(0, 1, 2, 3, 5));
}

TEST(LeastMemoryCuts, EqualLayersUnderOneForwardOneBackwardFollowTheHarmonicNumbers) {
  // 840 layers of one byte on 8 stages that hold 8, 7, ... 1 micro-batches: 840 / H_8, to a layer.
  PartitionProblem problem;
  problem.chain.layers.assign(840, plain(1, 1));
  double harmonic = 0.0;
  for (int k = 8; k > 0; --k) {
    problem.devices.push_back({.held = {static_cast<double>(k)}});
    harmonic += 1.0 / k;
  }
  const auto solved = least_memory_cuts(SegmentCosts(problem), 1e6);
  ASSERT_TRUE(solved);
  EXPECT_GE(solved->worst, 840 / harmonic);
  EXPECT_LE(solved->worst, 840 / harmonic + 8);
}

/// Of the slowest stage, all cuts tried.
double least_time_of_all_cuts(const SegmentCosts& costs) {
  double least = std::numeric_limits<double>::infinity();
  for_all_cuts(costs.units(), costs.stages(), [&](const Cuts& cuts) {
    double worst = 0.0;
    for (std::uint32_t k = 0; k + 1 < cuts.size(); ++k)
      worst =
          std::max(worst, costs.least_seconds({cuts[k], cuts[k + 1], k}, costs.device_bytes(k)));
    least = std::min(least, worst);
  });
  return least;
}

TEST(Interleaved, StagesShareTheDevicesThatRunThem) {
  PartitionProblem problem;
  problem.chain.layers.assign(24, plain(1, 10));
  problem.devices.assign(3, {.memory = Bytes(1000), .swap_rate = TransferRate(2.0)});
  problem.links.assign(2, {1.0, TransferRate(4.0)});
  PartitionProblem stages = interleaved(problem, 2);
  const std::array<double, 6> in_flight{5, 4.5, 4, 3, 2, 1};
  for (std::size_t k = 0; k < 6; ++k) stages.devices[k].held.in_flight = in_flight[k];
  const SegmentCosts costs(stages);
  ASSERT_EQ(costs.stages(), 6U);
  EXPECT_EQ(costs.device_bytes(4), 500);
  const auto solved = least_time_cuts(costs);
  ASSERT_TRUE(solved);
  // Each device runs stages k and k + 3, within its memory, in twice the worst stage's time.
  for (std::uint32_t device = 0; device < 3; ++device) {
    double bytes = 0.0;
    double seconds = 0.0;
    for (const std::uint32_t stage : {device, device + 3}) {
      const Segment segment{solved->cuts[stage], solved->cuts[stage + 1], stage};
      bytes += costs.least_bytes(segment, solved->worst);
      seconds += costs.least_seconds(segment, costs.device_bytes(stage));
    }
    EXPECT_LE(bytes, 1000);
    EXPECT_LE(seconds, 2 * solved->worst);
  }
  EXPECT_EQ(solved->worst, least_time_of_all_cuts(costs));
}

TEST(Interleaved, CountsReservedBytesAndTheLargestWorkingPeakOnceForADevice) {
  PartitionProblem problem;
  problem.chain.layers.assign(4, plain(1, 10));
  problem.chain.layers[2].working_peak = Bytes(300);
  problem.devices.assign(2, {.memory = Bytes(1000), .reserved = Bytes(100)});
  const SegmentCosts costs(interleaved(problem, 2));
  for (std::uint32_t stage = 0; stage < 4; ++stage) {
    const SegmentLoad load = costs.load({stage, stage + 1, stage});
    EXPECT_EQ(load.fixed_bytes, 400) << stage;
    EXPECT_EQ(costs.device_bytes(stage) - load.fixed_bytes, 300) << stage;
  }
}

/// Two layers of one second for each device: 100 bytes of stash on a device of 40, and what leads
/// to the next one.
PartitionProblem swapping_pipeline(std::uint32_t devices, bool transfers_hide) {
  PartitionProblem problem;
  for (std::uint32_t i = 0; i < 2 * devices; ++i) {
    problem.chain.layers.push_back(plain(1, 100));
    if (i > 0) problem.chain.borders.push_back({i - 1, {i}, Bytes(8)});
  }
  problem.devices.assign(devices, {.memory = Bytes(40), .swap_rate = TransferRate(80.0)});
  problem.links.assign(devices - 1, {0.5, TransferRate(4.0)});
  problem.transfers_hide = transfers_hide;
  return problem;
}

TEST(Interleaved, TheSameWorkOnTheSameDeviceTakesAsLong) {
  // One device, two layers: in the two seconds that both stages take its link carries all stash.
  const PartitionProblem one = swapping_pipeline(1, true);
  const double whole = least_time_cuts(SegmentCosts(one))->worst;
  const SegmentCosts halves(interleaved(one, 2));
  EXPECT_EQ(halves.load({0, 1, 0}).swap_rate.bytes_per_second(), 80.0);
  // What the border between both stages adds: 8 bytes kept, over 80 per second.
  EXPECT_NEAR(whole, 2.0, 1e-12);
  EXPECT_NEAR(2 * least_time_cuts(halves)->worst, 2 * (80 + 8) / 80.0, 1e-12);

  // A message of each stage takes its time once, not once for each stage of its device.
  const SegmentCosts waiting(interleaved(swapping_pipeline(2, false), 2));
  const SegmentLoad inner = waiting.load({1, 2, 1});
  EXPECT_EQ(inner.seconds, 1.0 + 2 * 2 * (8 * 0.25 + 0.5));
}

TEST(Interleaved, HalvedLayersTakeHalfTheTimeOfWholeOnes) {
  // Without borders nothing but the stages' number differs: 2 T of halves is T of whole layers.
  for (const std::uint32_t devices : {1U, 3U}) {
    PartitionProblem coarse;
    PartitionProblem fine;
    for (std::uint32_t i = 0; i < devices; ++i) {
      coarse.chain.layers.push_back(plain(2, 200));
      coarse.chain.layers.back().recompute = {{1.0, Bytes(0)}};
    }
    for (std::uint32_t i = 0; i < 2 * devices; ++i) {
      fine.chain.layers.push_back(plain(1, 100));
      fine.chain.layers.back().recompute = {{0.5, Bytes(0)}};
    }
    coarse.devices.assign(devices, {.memory = Bytes(60), .swap_rate = TransferRate(40.0)});
    fine.devices = coarse.devices;
    const double whole = least_time_cuts(SegmentCosts(coarse))->worst;
    const SegmentCosts halves(interleaved(fine, 2));
    EXPECT_NEAR(2 * least_time_cuts(halves)->worst, whole, 1e-12);
    EXPECT_GT(whole, 2.0);
  }
}

}  // namespace
}  // namespace spillway::partition
