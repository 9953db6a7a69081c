#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "piper_program.h"
#include "random_problems.h"
#include "spillway/base/error.h"
#include "spillway/planner/partition/partitioners.h"
#include "support/sanitized.h"

namespace spillway::partition {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

ModelLayer layer_of(double seconds, std::uint64_t stash) {
  ModelLayer layer;
  layer.name = "l";
  layer.forward_seconds = seconds;
  layer.backward_seconds = 0.0;
  layer.stash = Bytes(stash);
  return layer;
}

Cuts cut(const PartitionProblem& problem, std::string_view name) {
  return partitioner_named(name).cut(SegmentCosts(problem));
}

TEST(Piper, FindsTheOptimumOfItsProgram) {
  std::uint64_t solved = 0;
  for (const ProblemShape& shape :
       {ProblemShape{.layers = 9, .stages = 3}, ProblemShape{.layers = 8, .stages = 4},
        ProblemShape{.layers = 30, .stages = 5, .has_borders = false}}) {
    for_random_costs(tries(300U, 30U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      const double least = piper_seconds(costs);
      if (least == kInfinite) {
        EXPECT_THROW(partitioner_named("piper").cut(costs), PlanError);
        return;
      }
      const double found = piper_seconds(costs, partitioner_named("piper").cut(costs));
      EXPECT_NEAR(found, least, 1e-9 * (1 + least));
      ++solved;
    });
  }
  EXPECT_GT(solved, tries(500U, 50U));
}

TEST(Piper, KnowsNoFractionsOfLayers) {
  // In fractions two stages take 2.1 s and 1.15 s, in whole layers 3 s; 2.15 s is possible.
  PartitionProblem problem;
  problem.chain.layers = {layer_of(1.0, 10), layer_of(1.0, 10), layer_of(1.15, 5)};
  problem.chain.layers[0].recompute = problem.chain.layers[1].recompute = {{1.0, Bytes(0)}};
  problem.devices.assign(2, {.memory = Bytes(19)});
  EXPECT_THAT(cut(problem, "piper"), ::testing::ElementsAre(0, 1, 3));
}

/// The peaks that mCAP and CAPSlog predict: of the first layer alone, and what each further one
/// added to a window of layers when it was profiled.
double predicted(const SegmentCosts& costs, std::uint32_t first, std::uint32_t end,
                 std::uint32_t window) {
  const auto peak = [&](std::uint32_t from, std::uint32_t to) {
    return costs.load({from, to, 0}).raw_bytes();
  };
  double sum = peak(first, first + 1);
  for (std::uint32_t i = first + 1; i < end; ++i) {
    const std::uint32_t from = (i - 1) / window * window;
    sum += peak(from, i + 1) - peak(from, i);
  }
  return sum;
}

double worst_predicted(const SegmentCosts& costs, const Cuts& cuts, std::uint32_t window) {
  double worst = 0.0;
  for (std::uint32_t k = 0; k + 1 < cuts.size(); ++k)
    worst = std::max(worst, predicted(costs, cuts[k], cuts[k + 1], window));
  return worst;
}

/// Two workspaces of 100 among layers of 10: the sum of what they add is not their largest.
PartitionProblem with_workspaces() {
  PartitionProblem problem;
  for (std::uint32_t i = 0; i < 9; ++i) {
    problem.chain.layers.push_back(layer_of(1.0, 10));
    problem.chain.layers.back().working_peak = Bytes(i % 2 == 0 && i < 6 ? 0 : 100);
  }
  problem.devices.resize(3);
  return problem;
}

TEST(Mcap, FindsTheLeastPredictedPeakOfAllCuts) {
  const auto expect_least = [](const SegmentCosts& costs) {
    const std::uint32_t stages = costs.stages();
    const std::uint32_t window = stages > 2 ? (costs.units() - 2) / (stages - 2) + 1 : 1;
    double least = kInfinite;
    for_all_cuts(costs.units(), stages, [&](const Cuts& cuts) {
      least = std::min(least, worst_predicted(costs, cuts, window));
    });
    EXPECT_EQ(worst_predicted(costs, partitioner_named("mcap").cut(costs), window), least);
  };
  expect_least(SegmentCosts(with_workspaces()));
  for (const ProblemShape& shape :
       {ProblemShape{.layers = 9, .stages = 4}, ProblemShape{.layers = 8, .stages = 2}})
    for_random_costs(tries(200U, 20U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      expect_least(costs);
    });
}

TEST(Mcap, OfTwoLongStagesLooksAtAllCuts) {
  PartitionProblem problem;
  problem.chain.layers.assign(100'000, layer_of(1.0, 1));
  problem.chain.layers[99'999].stash = Bytes(50'001);
  problem.devices.resize(2);
  EXPECT_THAT(cut(problem, "mcap"), ::testing::ElementsAre(0, 75'000, 100'000));
}

TEST(Capslog, PredictsPeaksFromSingleLayersAndPairs) {
  // In pairs of layers with and without a workspace the second one seems to add it each time.
  PartitionProblem problem;
  for (int i = 0; i < 10; ++i) {
    problem.chain.layers.push_back(layer_of(1.0, 10));
    problem.chain.layers.back().working_peak = Bytes(i == 1 || i == 3 ? 100 : 0);
  }
  problem.devices.resize(2);
  const SegmentCosts costs(problem);
  EXPECT_EQ(costs.load({0, 4, 0}).raw_bytes(), 140);
  EXPECT_EQ(predicted(costs, 0, 4, 1), 10 + 110 + 10 + 110);
  EXPECT_THAT(cut(problem, "capslog"), ::testing::ElementsAre(0, 3, 10));
}

TEST(Torchgpipe, NormalisesTimesFirst) {
  // Equal layers are all 0, so that any blocks are balanced and the first ones stay.
  PartitionProblem problem;
  problem.chain.layers.assign(11, layer_of(7.0, 0));
  problem.devices.resize(4);
  EXPECT_THAT(cut(problem, "torchgpipe"), ::testing::ElementsAre(0, 2, 4, 6, 11));
}

TEST(Torchgpipe, LeavesNoTwoStagesFartherApartThanOne) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const PartitionProblem problem = without_limits(
        random_problem(seed, {.layers = 20, .stages = 5, .has_borders = false, .has_ties = false}));
    const SegmentCosts costs(problem);
    const Cuts cuts = partitioner_named("torchgpipe").cut(costs);
    const auto seconds = [&](std::uint32_t first, std::uint32_t end) {
      return costs.layer_seconds(first, end);
    };
    double low = kInfinite;
    double high = 0.0;
    for (std::uint32_t unit = 0; unit < costs.units(); ++unit) {
      low = std::min(low, seconds(unit, unit + 1));
      high = std::max(high, seconds(unit, unit + 1));
    }
    double least = kInfinite;
    double most = 0.0;
    for (std::uint32_t k = 0; k < 5; ++k) {
      const double size =
          (seconds(cuts[k], cuts[k + 1]) - low * (cuts[k + 1] - cuts[k])) / (high - low);
      least = std::min(least, size);
      most = std::max(most, size);
    }
    EXPECT_LE(most, least + 1 + 1e-9) << seed;
  }
}

TEST(Galvatron, FillsFromTheLastStageAndLeavesTheRestToTheFirst) {
  const auto cut_of = [](const std::vector<std::uint64_t>& stash, std::uint32_t stages) {
    PartitionProblem problem;
    for (const std::uint64_t each : stash) problem.chain.layers.push_back(layer_of(1.0, each));
    problem.devices.resize(stages);
    return cut(problem, "galvatron");
  };
  // Mean 30: the last stage takes 20, since more than half of 21 would be too much; then 21 and 10.
  EXPECT_THAT(cut_of({10, 9, 10, 10, 10, 21, 20}, 3), ::testing::ElementsAre(0, 4, 6, 7));
  EXPECT_THAT(cut_of({5, 5, 40, 5, 5, 20, 10, 30}, 3), ::testing::ElementsAre(0, 3, 6, 8));
  // Far above the mean, a layer goes on from stage to stage; the ones it leaves get one each.
  EXPECT_THAT(cut_of({5, 5, 40, 5, 5, 20, 10, 30}, 4), ::testing::ElementsAre(0, 2, 3, 4, 8));
}

}  // namespace
}  // namespace spillway::partition
