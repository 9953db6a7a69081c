#include "spillway/planner/partition/cut_solvers.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "random_problems.h"
#include "spillway/base/error.h"
#include "spillway/planner/partition/partition_estimate.h"
#include "support/sanitized.h"

namespace spillway::partition {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

double worst_of(const SegmentCosts& costs, const Cuts& cuts) {
  double worst = 0.0;
  for (std::uint32_t k = 0; k < costs.stages(); ++k)
    worst = std::max(worst, costs.least_seconds({cuts[k], cuts[k + 1], k}, costs.device_bytes(k)));
  return worst;
}

/// Static bytes times borders that they pass.
double bytes_between(const SegmentCosts& costs, const Cuts& one, const Cuts& other) {
  double bytes = 0.0;
  for (std::uint32_t k = 1; k < costs.stages(); ++k) {
    const std::uint32_t from = std::min(one[k], other[k]);
    const std::uint32_t to = std::max(one[k], other[k]);
    if (from < to) bytes += costs.static_bytes(from, to);
  }
  return bytes;
}

Cuts even(const SegmentCosts& costs) {
  Cuts cuts;
  for (std::uint32_t k = 0; k <= costs.stages(); ++k)
    cuts.push_back(k * costs.units() / costs.stages());
  return cuts;
}

TEST(RebalanceChoices, MoveTheFewestBytesOfAllCutsAsQuick) {
  std::uint64_t compared = 0;
  for (const bool has_borders : {false, true}) {
    const ProblemShape shape{.layers = 8, .stages = 4, .has_borders = has_borders};
    for_random_costs(tries(1000U, 60U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      const Cuts now = even(costs);
      std::vector<std::pair<double, double>> all;  // Seconds, bytes.
      for_all_cuts(costs.units(), costs.stages(), [&](const Cuts& cuts) {
        all.emplace_back(worst_of(costs, cuts), bytes_between(costs, now, cuts));
      });
      const auto choices = rebalance_choices(costs, now);
      double before = worst_of(costs, now);
      for (const SolvedCuts& choice : choices) {
        EXPECT_LT(choice.worst, before);
        EXPECT_EQ(choice.worst, worst_of(costs, choice.cuts));
        double fewest = kInfinite;
        for (const auto& [seconds, bytes] : all)
          if (seconds < before) fewest = std::min(fewest, bytes);
        EXPECT_NEAR(bytes_between(costs, now, choice.cuts), fewest, 1e-9);
        before = choice.worst;
        ++compared;
      }
      // The last one is the best there is, unless some were left out.
      const double best = choices.size() < 16 ? before * (1 - 1e-12) : 0.0;
      for (const auto& [seconds, bytes] : all) EXPECT_GE(seconds, best);
    });
  }
  EXPECT_GT(compared, tries(2000U, 100U));
}

PartitionProblem drifted() {
  PartitionProblem problem;
  for (int i = 0; i < 8; ++i) {
    ModelLayer layer;
    layer.name = "l";
    layer.forward_seconds = i < 2 ? 2.0 : 1.0;  // Once they all took 1 s.
    layer.backward_seconds = 0.0;
    layer.parameters = Bytes(100);
    layer.static_ratio = 4.0;
    problem.chain.layers.push_back(layer);
  }
  problem.devices.resize(4);
  problem.links.assign(3, {1.0, TransferRate(100.0)});
  return problem;
}

TEST(RebalanceChoices, MoveOneLayerOverEachBorderOfASlowStage) {
  const SegmentCosts costs(drifted());
  const auto choices = rebalance_choices(costs, {0, 2, 4, 6, 8});
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_EQ(choices[0].worst, 3.0);
  EXPECT_THAT(choices[0].cuts, ::testing::ElementsAre(0, 1, 3, 6, 8));
}

TEST(RebalanceChoices, LeaveCutsThatDoNotFitAnyMore) {
  PartitionProblem problem = drifted();
  for (ModelLayer& layer : problem.chain.layers) layer.forward_seconds = 1.0;
  problem.chain.layers[0].stash = Bytes(900);
  problem.devices.assign(4, {.memory = Bytes(1400)});
  const SegmentCosts costs(problem);
  const auto choices = rebalance_choices(costs, {0, 2, 4, 6, 8});
  ASSERT_FALSE(choices.empty());
  for (const SolvedCuts& choice : choices) EXPECT_TRUE(evaluate(costs, choice.cuts).fits);
}

/// A layer that no cuts divide is the slowest stage whatever moves, and swaps leave every time
/// open: no segment is ruled out by its time.
TEST(RebalanceChoices, ComeSoonForLongChainsThatDoNotFitAnyMore) {
  constexpr std::uint32_t kLayers = tries(20'000U, 2'000U);
  constexpr std::uint32_t kStages = tries(300U, 50U);
  PartitionProblem problem;
  for (std::uint32_t i = 0; i < kLayers; ++i) {
    ModelLayer layer;
    layer.name = "l";
    layer.forward_seconds = i == 0 ? 1e6 : 1e-3;
    layer.backward_seconds = 0.0;
    layer.parameters = Bytes(100 + i % 7);
    layer.stash = Bytes(10);
    layer.recompute = {{1e-4, Bytes(5)}};
    problem.chain.layers.push_back(layer);
  }
  StageDevice device;
  device.memory = Bytes(60ULL * kLayers);
  device.swap_rate = TransferRate(1e3);
  problem.devices.assign(kStages, device);
  const SegmentCosts costs(problem);
  // Nearly all layers are on the last stage, which has room for six of ten.
  Cuts now;
  for (std::uint32_t k = 0; k < kStages; ++k) now.push_back(k);
  now.push_back(kLayers);
  const auto choices = rebalance_choices(costs, now);
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_EQ(worst_of(costs, now), kInfinite);
  EXPECT_EQ(choices[0].worst, 1e6);
  EXPECT_TRUE(evaluate(costs, choices[0].cuts).fits);
  // The last border alone moves, and no farther than it must.
  const std::uint32_t border = choices[0].cuts[kStages - 1];
  EXPECT_EQ(choices[0].cuts[kStages - 2], kStages - 2);
  EXPECT_GT(costs.load({border - 1, kLayers, kStages - 1}).fixed_bytes, 60.0 * kLayers);
}

TEST(RebalanceChoices, RefuseCutsThatAreNone) {
  const SegmentCosts costs(drifted());
  EXPECT_THROW(rebalance_choices(costs, {0, 2, 4, 8}), PlanError);
}

}  // namespace
}  // namespace spillway::partition
