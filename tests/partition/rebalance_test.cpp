#include "spillway/planner/partition/rebalance.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "random_problems.h"
#include "spillway/base/error.h"
#include "spillway/planner/partition/partition_referee.h"
#include "support/sanitized.h"

namespace spillway::planner {
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
      const auto choices = rebalance_choices(costs, now, {.steps_left = 10});
      double before = worst_of(costs, now);
      for (const RebalancePlan& choice : choices) {
        EXPECT_LT(choice.seconds_after, before);
        double fewest = kInfinite;
        for (const auto& [seconds, bytes] : all)
          if (seconds < before) fewest = std::min(fewest, bytes);
        EXPECT_NEAR(bytes_between(costs, now, choice.cuts), fewest, 1e-9);
        before = choice.seconds_after;
        ++compared;
      }
      // The last one is the best there is, unless some were left out.
      const double best = choices.size() < 16 ? before * (1 - 1e-12) : 0.0;
      for (const auto& [seconds, bytes] : all) EXPECT_GE(seconds, best);
    });
  }
  EXPECT_GT(compared, tries(2000U, 100U));
}

TEST(RebalanceChoices, MovesLeadFromTheOldCutsToTheNewOnes) {
  for_random_costs(tries(500U, 60U), {.layers = 9, .stages = 4, .has_ties = false},
                   [&](const SegmentCosts& costs, std::uint64_t seed) {
                     SCOPED_TRACE(::testing::Message() << "seed " << seed);
                     const Cuts now = even(costs);
                     for (const RebalancePlan& plan :
                          rebalance_choices(costs, now, {.steps_left = 10, .flush_seconds = 0.5})) {
                       std::vector<std::uint32_t> stage_of(costs.units());
                       for (std::uint32_t k = 0; k < costs.stages(); ++k)
                         std::fill(stage_of.begin() + now[k], stage_of.begin() + now[k + 1], k);
                       Bytes bytes;
                       std::map<std::uint32_t, double> slowest;
                       std::vector<std::pair<LayerIndex, std::uint32_t>> arrivals;
                       std::uint32_t flush = 0;
                       const auto arrive = [&] {
                         for (const auto& [layer, stage] : arrivals) stage_of[layer] = stage;
                         arrivals.clear();
                       };
                       for (const LayerMove& move : plan.moves) {
                         if (move.flush != flush) arrive();
                         flush = move.flush;
                         EXPECT_EQ(std::max(move.from_stage, move.to_stage),
                                   std::min(move.from_stage, move.to_stage) + 1);
                         for (LayerIndex layer = move.first_layer; layer <= move.last_layer;
                              ++layer) {
                           EXPECT_EQ(stage_of[layer], move.from_stage);
                           arrivals.emplace_back(layer, move.to_stage);
                         }
                         bytes += move.bytes;
                         slowest[flush] = std::max(slowest[flush], move.seconds);
                       }
                       arrive();
                       for (std::uint32_t k = 0; k < costs.stages(); ++k)
                         for (std::uint32_t unit = plan.cuts[k]; unit < plan.cuts[k + 1]; ++unit)
                           EXPECT_EQ(stage_of[unit], k);
                       EXPECT_EQ(bytes, plan.bytes);
                       EXPECT_EQ(plan.flushes, flush + 1);
                       double seconds = 0.5 * plan.flushes;
                       for (const auto& [each, time] : slowest) seconds += time;
                       EXPECT_NEAR(plan.move_seconds, seconds, 1e-9);
                       EXPECT_EQ(plan.pays, plan.gained_seconds > plan.move_seconds);
                     }
                   });
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
  problem.links.assign(3, {0.01, 1.0});
  return problem;
}

TEST(Rebalance, MovesWhenTheStepsThatAreLeftPayForIt) {
  const SegmentCosts costs(drifted());
  const Cuts now{0, 2, 4, 6, 8};
  const RebalancePlan plan = rebalance(costs, now, {.steps_left = 100, .flush_seconds = 2.0});
  EXPECT_TRUE(plan.pays);
  EXPECT_EQ(plan.seconds_before, 4.0);
  EXPECT_EQ(plan.seconds_after, 3.0);
  EXPECT_THAT(plan.cuts, ::testing::ElementsAre(0, 1, 3, 6, 8));
  EXPECT_EQ(plan.bytes, Bytes(2 * 400));
  EXPECT_EQ(plan.flushes, 1U);
  EXPECT_NEAR(plan.move_seconds, 2.0 + 1.0 + 4.0, 1e-12);  // Both links at the same time.
  EXPECT_NEAR(plan.gained_seconds, 100.0, 1e-9);

  const RebalancePlan stay = rebalance(costs, now, {.steps_left = 6, .flush_seconds = 2.0});
  EXPECT_FALSE(stay.pays);
  EXPECT_THAT(stay.cuts, ::testing::ElementsAreArray(now));
  EXPECT_TRUE(stay.moves.empty());
}

TEST(Rebalance, LeavesCutsThatDoNotFitAnyMoreWhateverItTakes) {
  PartitionProblem problem = drifted();
  for (ModelLayer& layer : problem.chain.layers) layer.forward_seconds = 1.0;
  problem.chain.layers[0].stash = Bytes(900);
  problem.devices.assign(4, {.memory = Bytes(1400)});
  const SegmentCosts costs(problem);
  const RebalancePlan plan = rebalance(costs, {0, 2, 4, 6, 8}, {.steps_left = 0});
  EXPECT_EQ(plan.seconds_before, kInfinite);
  EXPECT_TRUE(plan.pays);
  EXPECT_TRUE(judge(costs, plan.cuts).fits);
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
  device.swap_seconds_per_byte = 1e-3;
  problem.devices.assign(kStages, device);
  const SegmentCosts costs(problem);
  // Nearly all layers are on the last stage, which has room for six of ten.
  Cuts now;
  for (std::uint32_t k = 0; k < kStages; ++k) now.push_back(k);
  now.push_back(kLayers);
  const auto choices = rebalance_choices(costs, now, {});
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_EQ(choices[0].seconds_before, kInfinite);
  EXPECT_EQ(choices[0].seconds_after, 1e6);
  EXPECT_TRUE(judge(costs, choices[0].cuts).fits);
  // The last border alone moves, and no farther than it must.
  const std::uint32_t border = choices[0].cuts[kStages - 1];
  EXPECT_EQ(choices[0].cuts[kStages - 2], kStages - 2);
  EXPECT_GT(costs.load({border - 1, kLayers, kStages - 1}).fixed_bytes, 60.0 * kLayers);
}

TEST(Rebalance, RefusesSenselessOptions) {
  const SegmentCosts costs(drifted());
  const Cuts now{0, 2, 4, 6, 8};
  EXPECT_THROW(rebalance(costs, now, {.steps_left = -1}), ConfigError);
  EXPECT_THROW(rebalance(costs, now, {.micro_batches = 0}), ConfigError);
  EXPECT_THROW(rebalance(costs, now, {.flush_seconds = kInfinite}), ConfigError);
  EXPECT_THROW(rebalance(costs, {0, 2, 4, 8}, {}), PlanError);
}

}  // namespace
}  // namespace spillway::planner
