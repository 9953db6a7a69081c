#include <gmock/gmock.h>

#include <algorithm>

#include "random_problems.h"
#include "spillway/planner/partition/partitioners.h"
#include "support/sanitized.h"
#include "whole_actions.h"
#include "whole_layer_cuts.h"

namespace spillway::partition {
namespace {

/// Layers that all differ, each with two points; devices that hold some of their stash.
PartitionProblem long_chain(std::uint32_t layers, std::uint32_t stages) {
  PartitionProblem problem;
  std::uint64_t random = 1;
  const auto below = [&](std::uint64_t end) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    return (random >> 33) % end;
  };
  double stash = 0.0;
  for (std::uint32_t i = 0; i < layers; ++i) {
    ModelLayer layer;
    layer.name = "l";
    layer.forward_seconds = 1e-3 * static_cast<double>(500 + below(1000));
    layer.backward_seconds = 2 * layer.forward_seconds;
    layer.stash = Bytes(1'000'000 + below(50'000'000));
    layer.recompute = {{layer.forward_seconds * 1e-2 * static_cast<double>(20 + below(30)),
                        layer.stash / (2 + below(2))},
                       {layer.forward_seconds, layer.stash / 10}};
    stash += static_cast<double>(layer.stash.count());
    problem.chain.layers.push_back(layer);
  }
  problem.devices.assign(stages,
                         {.memory = Bytes(static_cast<std::uint64_t>(0.6 * stash / stages))});
  return problem;
}

double longest_point(const PartitionProblem& problem) {
  double longest = 0.0;
  for (const ModelLayer& layer : problem.chain.layers)
    for (const RecomputePoint& point : layer.recompute) longest = std::max(longest, point.seconds);
  return longest;
}

TEST(WholeLayers, OfLongStagesTakeABoundedEffort) {
  for (const auto& [layers, stages] : {std::pair{10'000U, 4U}, {100'000U, 2U}}) {
    SCOPED_TRACE(layers);
    const PartitionProblem problem = long_chain(tries(layers, layers / 10), stages);
    const SegmentCosts costs(problem);
    const PartitionEstimate estimate = evaluate(costs, partitioner_named("even").cut(costs));
    EXPECT_TRUE(estimate.fits);
    // Half a million sets are kept in each stage, and three points follow each of them.
    EXPECT_LE(estimate.point_sets, stages * 3U * (524'288U + 8U * layers));
    EXPECT_LE(estimate.seconds, estimate.fluid_seconds + longest_point(problem));
    const PartitionEstimate small =
        evaluate_memory(costs, partitioner_named("even").cut(costs), 1.1 * estimate.seconds);
    EXPECT_LE(small.point_sets, stages * 3U * (524'288U + 8U * layers));
    EXPECT_LE(small.rounding_gap, 0.01);
  }
}

TEST(WholeLayers, OursEndsOnLongStages) {
  const PartitionProblem problem = long_chain(tries(10'000U, 1'000U), 4);
  const SegmentCosts costs(problem);
  const PartitionEstimate ours = evaluate(costs, partitioner_named("spillway").cut(costs));
  EXPECT_TRUE(ours.fits);
  EXPECT_LE(ours.seconds, least_time_cuts(costs)->worst + longest_point(problem));
}

TEST(WholeLayers, AreNeverAStepSlowerThanFractions) {
  const ProblemShape shape{.layers = 40, .stages = 3};
  for_random_costs(tries(300U, 30U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Cuts cuts = partitioner_named("even").cut(costs);
    for (std::uint32_t k = 0; k < costs.stages(); ++k) {
      const Segment segment{cuts[k], cuts[k + 1], k};
      const double bytes = costs.device_bytes(k);
      const double fluid = costs.least_seconds(segment, bytes);
      if (fluid == kNever) continue;
      const SegmentLoad load = costs.load(segment);
      const auto actions = quickest_actions(costs, segment, bytes);
      const double seconds = seconds_with(load, actions, bytes);
      EXPECT_GE(seconds, fluid * (1 - 1e-9));
      EXPECT_LE(seconds, fluid + longest_point(costs.problem()) *
                                     costs.problem().devices[k].slowdown * (1 + 1e-9));
      // Who asks for less than that finds no more, and who asks for a little more the same.
      const auto again = quickest_actions(costs, segment, bytes, seconds * (1 + 1e-9));
      EXPECT_NEAR(seconds_with(load, again, bytes), seconds, 1e-9 * (1 + seconds));
      EXPECT_LE(again.sets, actions.sets);
    }
  });
}

// The saved bytes of the second point, 2^53 + 1, are no number that a double holds: the point was
// not found again, and the first one was named.
TEST(WholeLayers, NameTheirPointWhereSizesAreRounded) {
  constexpr std::uint64_t kExact = std::uint64_t{1} << 53U;
  ModelLayer layer;
  layer.name = "l";
  layer.forward_seconds = 1.0;
  layer.backward_seconds = 2.0;
  layer.stash = Bytes(kExact + 3);
  layer.recompute = {{2.0, Bytes(kExact / 2)}, {1.0, Bytes(2)}};
  PartitionProblem problem;
  problem.chain.layers = {layer};
  problem.devices.resize(1);
  const SegmentCosts costs(problem);
  const WholeActions actions = most_saving_actions(costs, Segment{0, 1, 0}, 4.5);
  ASSERT_EQ(actions.points.size(), 1U);
  EXPECT_EQ(actions.points[0].point, 1U);
  EXPECT_EQ(actions.recompute_seconds, 1.0);
}

TEST(WholeLayers, TheSearchForTheBestCutsEndsWithItsEffort) {
  const PartitionProblem problem = long_chain(60, 4);
  const SegmentCosts costs(problem);
  Effort enough{20'000'000};
  const double start = 1.001 * evaluate(costs, partitioner_named("even").cut(costs)).seconds;
  const auto best = fastest_whole_layer_cuts(costs, start, enough);
  ASSERT_TRUE(best);
  EXPECT_FALSE(enough.is_spent());
  const std::uint64_t needed = 20'000'000 - enough.left;
  EXPECT_GT(needed, 100U);
  Effort same{needed + 1};
  EXPECT_EQ(fastest_whole_layer_cuts(costs, start, same), best);
  Effort half{needed / 2};
  EXPECT_FALSE(fastest_whole_layer_cuts(costs, start, half));
  Effort none;
  EXPECT_EQ(whole_seconds(costs, Segment{0, 10, 0}, kNever, none), kNever);
}

}  // namespace
}  // namespace spillway::partition
