#include "spillway/planner/partition/segment_costs.h"

#include <gmock/gmock.h>

#include <cmath>

#include "random_problems.h"
#include "slow_costs.h"
#include "support/sanitized.h"

namespace spillway::partition {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

void expect_near(double actual, double expected, const char* what) {
  if (expected == kInfinite || actual == kInfinite) {
    EXPECT_EQ(actual, expected) << what;
  } else {
    EXPECT_NEAR(actual, expected, 1e-9 * (1.0 + std::abs(expected))) << what;
  }
}

void for_all_segments(const SegmentCosts& costs, const std::function<void(Segment)>& see) {
  for (std::uint32_t stage = 0; stage < costs.stages(); ++stage)
    for (std::uint32_t first = 0; first < costs.units(); ++first)
      for (std::uint32_t end = first + 1; end <= costs.units(); ++end) see({first, end, stage});
}

SlowCosts slow(const SegmentCosts& costs, Segment segment) {
  return SlowCosts(costs.problem(), costs.first_layer(segment.first),
                   costs.first_layer(segment.end), segment.stage);
}

const ProblemShape kShapes[] = {
    {.layers = 6, .stages = 3},
    {.layers = 9, .stages = 2},
    {.layers = 5, .stages = 4},
    {.layers = 6, .stages = 3, .has_borders = false, .has_ties = false, .differ = false},
};

TEST(SegmentCosts, AreTheSumsOfTheirDefinitions) {
  for (const ProblemShape& shape : kShapes) {
    for_random_costs(tries(60U, 20U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      for_all_segments(costs, [&](Segment segment) {
        const SegmentLoad load = costs.load(segment);
        const SlowCosts expected = slow(costs, segment);
        expect_near(load.seconds, expected.seconds, "seconds");
        expect_near(load.link_seconds, expected.link_seconds, "link seconds");
        expect_near(load.fixed_bytes, expected.fixed_bytes, "fixed bytes");
        expect_near(load.stash_bytes, expected.stash_bytes, "stash bytes");
      });
    });
  }
}

TEST(SegmentCosts, KnowTheLeastMemoryAtATime) {
  for (const ProblemShape& shape : kShapes) {
    for_random_costs(tries(60U, 20U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      for_all_segments(costs, [&](Segment segment) {
        const SegmentLoad load = costs.load(segment);
        const SlowCosts expected = slow(costs, segment);
        for (const double slack : {-0.5, 0.0, 0.5, 1.75, 4.0, 11.0, 100.0}) {
          const double seconds = std::max(0.0, load.seconds + slack);
          expect_near(costs.least_bytes(segment, seconds),
                      expected.least_bytes(seconds, load.swap_rate.bytes_per_second()), "bytes");
          expect_near(
              costs.least_bytes(segment, seconds, Borders::kExact, MemoryReduction::kRecompute),
              expected.least_bytes(seconds, 0.0), "bytes without swaps");
        }
      });
    });
  }
}

TEST(SegmentCosts, KnowTheLeastTimeWithinMemory) {
  for (const ProblemShape& shape : kShapes) {
    for_random_costs(tries(12U, 3U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      for_all_segments(costs, [&](Segment segment) {
        const SegmentLoad load = costs.load(segment);
        const SlowCosts expected = slow(costs, segment);
        for (const double share : {0.0, 0.2, 0.45, 0.7, 0.95, 1.0}) {
          const double bytes =
              load.fixed_bytes + share * load.in_flight * load.stash_bytes - (share == 0.0 ? 1 : 0);
          expect_near(costs.least_seconds(segment, bytes),
                      expected.least_seconds(bytes, load.swap_rate.bytes_per_second()), "seconds");
        }
      });
    });
  }
}

TEST(SegmentCosts, TimeAndMemoryAreInverse) {
  const ProblemShape shape{.layers = 6, .stages = 3};
  for_random_costs(tries(200U, 40U), shape, [&](const SegmentCosts& costs, std::uint64_t) {
    for_all_segments(costs, [&](Segment segment) {
      const SegmentLoad load = costs.load(segment);
      const double bytes = load.fixed_bytes + 0.6 * load.in_flight * load.stash_bytes;
      const double seconds = costs.least_seconds(segment, bytes);
      if (seconds == kInfinite) return;
      EXPECT_LE(costs.least_bytes(segment, seconds * (1 + 1e-12)), bytes * (1 + 1e-9) + 1e-9);
    });
  });
}

TEST(SegmentCosts, BoundsEncloseAndGrow) {
  for (const ProblemShape& shape : kShapes) {
    for_random_costs(tries(60U, 20U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      for_all_segments(costs, [&](Segment segment) {
        const double bytes = costs.device_bytes(segment.stage);
        const auto cost = [&](Segment here, Borders borders, bool is_time) {
          return is_time ? costs.least_seconds(here, bytes, borders)
                         : costs.least_bytes(here, 40.0, borders);
        };
        for (const bool is_time : {true, false}) {
          const double low = cost(segment, Borders::kNone, is_time);
          const double exact = cost(segment, Borders::kExact, is_time);
          const double high = cost(segment, Borders::kLargest, is_time);
          EXPECT_LE(low, exact * (1 + 1e-12));
          EXPECT_LE(exact, high * (1 + 1e-12));
          for (Segment larger : {Segment{segment.first, segment.end + 1, segment.stage},
                                 Segment{segment.first - 1, segment.end, segment.stage}}) {
            if (larger.first > segment.first || larger.end > costs.units()) continue;
            EXPECT_LE(low, cost(larger, Borders::kNone, is_time) * (1 + 1e-12));
            EXPECT_LE(high, cost(larger, Borders::kLargest, is_time) * (1 + 1e-12));
            if (costs.is_monotone()) {
              EXPECT_LE(exact, cost(larger, Borders::kExact, is_time) * (1 + 1e-12));
            }
          }
        }
      });
    });
  }
}

ModelLayer layer(double seconds, std::uint64_t stash) {
  ModelLayer one;
  one.name = std::string(1, 'l');  // g++ 12 warns of an assignment here.
  one.forward_seconds = seconds / 3;
  one.backward_seconds = 2 * seconds / 3;
  one.stash = Bytes(stash);
  return one;
}

TEST(SegmentCosts, SwapFirstAndRecomputeWhatTheLinkLeaves) {
  PartitionProblem problem;
  problem.chain.layers = {layer(3, 100), layer(3, 100)};
  for (ModelLayer& each : problem.chain.layers) each.recompute = {{1.0, Bytes(0)}};
  problem.devices = {{.memory = Bytes(60), .swap_rate = TransferRate(10.0)}};
  const SegmentCosts costs(problem);
  // 140 bytes must go: 60 by the link in 6 s, then each second recomputes 100 and swaps 10.
  EXPECT_NEAR(costs.least_seconds({0, 2, 0}, 60.0), 6.0 + 80.0 / 110.0, 1e-12);
  EXPECT_NEAR(costs.least_bytes({0, 2, 0}, 6.5), 200 - 65 - 50, 1e-12);
}

TEST(SegmentCosts, SkippedStagesHoldOneCopyOfWhatPasses) {
  PartitionProblem problem;
  problem.chain.layers = {layer(1, 0), layer(1, 0), layer(1, 0)};
  problem.chain.borders = {{0, {2}, Bytes(10)}};
  problem.devices = {{.held = {3}}, {.held = {2}}, {.held = {1}}};
  const SegmentCosts costs(problem);
  EXPECT_EQ(costs.load({1, 2, 1}).raw_bytes(), 10);      // Received and sent on.
  EXPECT_EQ(costs.load({2, 3, 2}).raw_bytes(), 10);      // Kept for one micro-batch in flight.
  EXPECT_EQ(costs.load({1, 3, 1}).raw_bytes(), 2 * 10);  // Kept for two.
  EXPECT_EQ(costs.load({0, 3, 0}).raw_bytes(), 0);
  EXPECT_EQ(costs.crossing_bytes(1), 10);
  EXPECT_EQ(costs.crossing_bytes(2), 10);
  EXPECT_FALSE(costs.is_monotone());
}

TEST(SegmentCosts, LeadingFrozenLayersKeepNothingOfWhatTheyReceive) {
  PartitionProblem problem;
  problem.chain.layers = {layer(1, 0), layer(1, 0), layer(1, 0), layer(1, 0)};
  problem.chain.layers[0].is_frozen = problem.chain.layers[1].is_frozen = true;
  problem.chain.borders = {{0, {1}, Bytes(100)}, {1, {2}, Bytes(10)}, {0, {1, 3}, Bytes(1)}};
  problem.devices.assign(4, {.held = {4}});
  const SegmentCosts costs(problem);
  // The frozen reader has each tensor once, the trained one for every micro-batch in flight.
  EXPECT_EQ(costs.load({1, 2, 1}).raw_bytes(), 100 + 1);
  EXPECT_EQ(costs.load({2, 3, 2}).raw_bytes(), 4 * 10 + 1);
  EXPECT_EQ(costs.load({1, 3, 1}).raw_bytes(), 100 + 1);  // Sends the last one on.
  EXPECT_EQ(costs.load({1, 4, 1}).raw_bytes(), 100 + 4 * 1);
}

TEST(SegmentCosts, EndlessTimeIsNoReasonToSwapWithoutALink) {
  PartitionProblem problem;
  problem.chain.layers.push_back(layer(1, 100));
  problem.devices = {{.memory = Bytes(60)}};
  problem.chain.layers[0].recompute = {{1.0, Bytes(30)}};
  const SegmentCosts costs(problem);
  EXPECT_EQ(costs.least_bytes({0, 1, 0}, kInfinite), 30);
}

TEST(SegmentCosts, TiedAndFrozenWeightsCountOnceWhereTheyAre) {
  PartitionProblem problem;
  problem.chain.layers = {layer(1, 5), layer(1, 5), layer(1, 5)};
  for (ModelLayer& each : problem.chain.layers) {
    each.parameters = Bytes(100);
    each.static_ratio = 4;
  }
  problem.chain.layers[0].is_frozen = true;
  problem.chain.ties = {{{1, 2}, Bytes(60)}};
  problem.devices = {{.held = {2, 3}}, {.held = {1}}};
  const SegmentCosts costs(problem);
  EXPECT_EQ(costs.load({0, 1, 0}).raw_bytes(), 100);  // Without gradient, versions or stash.
  EXPECT_NEAR(costs.load({0, 1, 0}).seconds, 1.0 / 3, 1e-12);
  EXPECT_EQ(costs.load({1, 2, 0}).raw_bytes(), 100 * (3 + 3) + 2 * 5);
  EXPECT_EQ(costs.load({1, 3, 1}).raw_bytes(), (200 - 60) * 4 + 10);
}

TEST(SegmentCosts, TiedWeightsOfOneStageAreHeldOnce) {
  PartitionProblem problem;
  for (int i = 0; i < 4; ++i) {
    problem.chain.layers.push_back(layer(1, 0));
    problem.chain.layers.back().parameters = Bytes(100);
  }
  problem.chain.ties = {{{0, 1, 3}, Bytes(60)}};
  problem.chain.together = {{0, 1}};
  problem.devices.resize(2);
  const SegmentCosts costs(problem);
  EXPECT_EQ(costs.parameter_bytes(0, 3), 400);
  EXPECT_EQ(costs.held_parameter_bytes(0, 3), 400 - 2 * 60);
  EXPECT_EQ(costs.held_parameter_bytes(0, 1), 200 - 60);
  EXPECT_EQ(costs.held_parameter_bytes(1, 3), 200);
}

}  // namespace
}  // namespace spillway::partition
