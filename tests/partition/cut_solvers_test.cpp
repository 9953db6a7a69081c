#include "spillway/planner/partition/cut_solvers.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "bottleneck_search.h"
#include "random_problems.h"
#include "support/sanitized.h"

namespace spillway::partition {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
using Cost = std::function<double(Segment)>;

double worst_of(const Cuts& cuts, const Cost& cost) {
  double worst = 0.0;
  for (std::uint32_t k = 0; k + 1 < cuts.size(); ++k)
    worst = std::max(worst, cost({cuts[k], cuts[k + 1], k}));
  return worst;
}

/// Of all cuts.
double least_worst(const SegmentCosts& costs, const Cost& cost) {
  double least = kInfinite;
  for_all_cuts(costs.units(), costs.stages(),
               [&](const Cuts& cuts) { least = std::min(least, worst_of(cuts, cost)); });
  return least;
}

/// The dynamic program in units^2 * stages.
double least_worst_by_table(const SegmentCosts& costs, const Cost& cost) {
  const std::uint32_t units = costs.units();
  std::vector<double> worst(units + 1, kInfinite);
  worst[0] = 0.0;
  for (std::uint32_t k = 0; k < costs.stages(); ++k) {
    std::vector<double> next(units + 1, kInfinite);
    for (std::uint32_t end = 1; end <= units; ++end)
      for (std::uint32_t begin = 0; begin < end; ++begin)
        if (worst[begin] < next[end])
          next[end] = std::min(next[end], std::max(worst[begin], cost({begin, end, k})));
    worst = std::move(next);
  }
  return worst[units];
}

Cost time_of(const SegmentCosts& costs,
             MemoryReduction memory_reduction = MemoryReduction::kSwapAndRecompute) {
  return [&costs, memory_reduction](Segment segment) {
    return costs.least_seconds(segment, costs.device_bytes(segment.stage), Borders::kExact,
                               memory_reduction);
  };
}

Cost memory_of(const SegmentCosts& costs, double seconds) {
  return [&costs, seconds](Segment segment) {
    const double bytes = costs.least_bytes(segment, seconds);
    return bytes <= costs.device_bytes(segment.stage) ? bytes : kInfinite;
  };
}

void expect_solved(const std::optional<SolvedCuts>& solved, double expected, const Cost& cost) {
  ASSERT_EQ(solved.has_value(), expected < kInfinite);
  if (!solved) return;
  EXPECT_TRUE(solved->is_exact);
  EXPECT_NEAR(solved->worst, expected, 1e-12 * expected);
  EXPECT_EQ(worst_of(solved->cuts, cost), solved->worst);
}

/// Times at which memory is looked at: from just possible to plenty.
std::vector<double> interesting_times(const SegmentCosts& costs) {
  const double least = least_worst(costs, [&](Segment segment) {
    const SegmentLoad load = costs.load(segment);
    return std::max(load.seconds, load.link_seconds);
  });
  return {least, 1.25 * least, 2 * least + 3};
}

struct Counts {
  std::uint64_t solved = 0;
  std::uint64_t impossible = 0;
};

const ProblemShape kMonotone{.layers = 8, .stages = 3, .has_borders = false, .has_links = false};
const ProblemShape kMonotoneDeep{.layers = 8, .stages = 5, .has_borders = false};
const ProblemShape kBorders{.layers = 8, .stages = 3};
const ProblemShape kBordersDeep{.layers = 7, .stages = 5};

TEST(LeastTimeCuts, EqualsAllCutsTried) {
  Counts counts;
  for (const ProblemShape& shape : {kMonotone, kMonotoneDeep, kBorders, kBordersDeep}) {
    for_random_costs(tries(700U, 100U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      const Cost cost = time_of(costs);
      const double expected = least_worst(costs, cost);
      expect_solved(least_time_cuts(costs), expected, cost);
      ++(expected < kInfinite ? counts.solved : counts.impossible);
    });
  }
  EXPECT_GT(counts.solved, tries(2000U, 200U));
  EXPECT_GT(counts.impossible, tries(20U, 2U));
}

TEST(LeastTimeCuts, WithoutSwapsOrMemoryReductionEqualsAllCutsTried) {
  for (const MemoryReduction memory_reduction :
       {MemoryReduction::kNone, MemoryReduction::kRecompute}) {
    for (const ProblemShape& shape : {kMonotone, kBorders}) {
      for_random_costs(tries(250U, 50U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const Cost cost = time_of(costs, memory_reduction);
        expect_solved(least_time_cuts(costs, memory_reduction), least_worst(costs, cost), cost);
      });
    }
  }
}

TEST(LeastMemoryCuts, EqualsAllCutsTried) {
  Counts counts;
  for (const ProblemShape& shape : {kMonotone, kMonotoneDeep, kBorders, kBordersDeep}) {
    for_random_costs(tries(300U, 40U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      for (const double seconds : interesting_times(costs)) {
        const Cost cost = memory_of(costs, seconds);
        const double expected = least_worst(costs, cost);
        expect_solved(least_memory_cuts(costs, seconds), expected, cost);
        ++(expected < kInfinite ? counts.solved : counts.impossible);
      }
    });
  }
  EXPECT_GT(counts.solved, tries(2000U, 200U));
  EXPECT_GT(counts.impossible, tries(20U, 2U));
}

/// The same problem with figures of many digits, whose sums are rounded.
PartitionProblem rounded(PartitionProblem problem) {
  for (ModelLayer& layer : problem.chain.layers) {
    layer.forward_seconds *= 0.1234567891;
    layer.backward_seconds *= 1.0 / 7.0;
    for (RecomputePoint& point : layer.recompute) point.seconds *= 0.3333333333;
  }
  for (StageDevice& device : problem.devices) {
    device.swap_rate = device.swap_rate * 9.87654321;
    device.slowdown *= 1.1;
  }
  for (LinkCosts& link : problem.links) {
    link.rate = link.rate * 9.87654321;
    link.latency_seconds *= 0.1;
  }
  return problem;
}

TEST(LeastTimeCuts, OfRoundedFiguresCostWhatTheirSegmentsCost) {
  for (const ProblemShape& shape : {kMonotone, kBorders, kBordersDeep}) {
    for_random_costs(tries(300U, 40U), shape, [&](const SegmentCosts& whole, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      const SegmentCosts costs(rounded(whole.problem()));
      const Cost cost = time_of(costs);
      expect_solved(least_time_cuts(costs), least_worst(costs, cost), cost);
      const auto balanced = balanced_time_cuts(costs);
      if (!balanced) return;
      EXPECT_EQ(worst_of(balanced->cuts, cost), balanced->worst);
    });
  }
}

TEST(LeastMemoryCuts, EqualsTheTableOnLongerChains) {
  for (const bool has_borders : {false, true}) {
    const ProblemShape shape{.layers = 60, .stages = 9, .has_borders = has_borders};
    for_random_costs(tries(60U, 5U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      const Cost time = time_of(costs);
      const double least = least_worst_by_table(costs, time);
      expect_solved(least_time_cuts(costs), least, time);
      const double seconds = least < kInfinite ? 1.2 * least : 200.0;
      const Cost memory = memory_of(costs, seconds);
      expect_solved(least_memory_cuts(costs, seconds), least_worst_by_table(costs, memory), memory);
    });
  }
}

/// Costs whose upper bound is rounded to just below them.
class RoundedDownGoal : public SegmentGoal {
 public:
  double cost(Segment segment, Borders borders) const override {
    const double exact = 0.1 * (segment.end - segment.first);
    if (borders == Borders::kLargest) return std::nextafter(exact, 0.0);
    return borders == Borders::kNone ? exact / 2 : exact;
  }
  bool is_monotone() const override { return false; }
};

TEST(LeastBottleneck, IsWhatTheSegmentsCostWhereABoundIsRounded) {
  const RoundedDownGoal goal;
  for (std::uint32_t units = 3; units < 40; ++units) {
    const CutRange range{0, units, 0, 3};
    const auto found = least_bottleneck(goal, range);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->worst, bottleneck_of(goal, range, found->cuts));
    EXPECT_EQ(found->worst, 0.1 * ((units + 2) / 3));
    const auto balanced = balanced_by_table(goal, range);
    ASSERT_TRUE(balanced);
    EXPECT_EQ(balanced->worst, found->worst);
  }
}

/// Costs from the worst.
std::vector<double> sorted_costs(const Cuts& cuts, const Cost& cost) {
  std::vector<double> all;
  for (std::uint32_t k = 0; k + 1 < cuts.size(); ++k)
    all.push_back(cost({cuts[k], cuts[k + 1], k}));
  std::sort(all.begin(), all.end(), std::greater<>());
  return all;
}

TEST(BalancedCuts, AreTheLeastOfAllInTheOrderOfDictionaries) {
  for (const ProblemShape& shape : {kMonotone, kMonotoneDeep, kBorders, kBordersDeep}) {
    for_random_costs(tries(550U, 60U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      const std::pair<Cost, std::optional<SolvedCuts>> balanced[] = {
          {time_of(costs), balanced_time_cuts(costs)},
          {memory_of(costs, 60.0), balanced_cuts(MemoryGoal(costs, 60.0), whole(costs))}};
      for (const auto& [cost, solved] : balanced) {
        std::vector<double> least;
        for_all_cuts(costs.units(), costs.stages(), [&](const Cuts& cuts) {
          const std::vector<double> all = sorted_costs(cuts, cost);
          if (all.front() < kInfinite && (least.empty() || all < least)) least = all;
        });
        ASSERT_EQ(solved.has_value(), !least.empty());
        if (!solved) continue;
        EXPECT_TRUE(solved->is_exact);
        EXPECT_THAT(sorted_costs(solved->cuts, cost),
                    ::testing::Pointwise(::testing::DoubleNear(1e-9), least));
      }
    });
  }
}

TEST(BalancedCuts, BeyondTheTableKeepTheWorstStageAndBalanceTheRest) {
  // 2,500 units on 40 stages: all layers differ, so that no two segments tie.
  PartitionProblem problem;
  for (std::uint32_t i = 0; i < 2500; ++i) {
    ModelLayer layer;
    layer.name = "l";
    layer.forward_seconds = 1.0 + 0.5 * std::sin(1.7 * i) + 0.01 * std::sin(0.013 * i * i);
    layer.backward_seconds = 0.0;
    problem.chain.layers.push_back(layer);
  }
  problem.devices.resize(40);
  const SegmentCosts costs(problem);
  const auto balanced = balanced_time_cuts(costs);
  const auto least = least_time_cuts(costs);
  ASSERT_TRUE(balanced && least);
  EXPECT_FALSE(balanced->is_exact);
  EXPECT_EQ(balanced->worst, least->worst);
  const auto before = sorted_costs(least->cuts, time_of(costs));
  const auto after = sorted_costs(balanced->cuts, time_of(costs));
  EXPECT_EQ(before.front(), after.front());
  EXPECT_LT(after, before);
}

}  // namespace
}  // namespace spillway::partition
