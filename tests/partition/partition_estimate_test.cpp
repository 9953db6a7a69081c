#include "spillway/planner/partition/partition_estimate.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "random_problems.h"
#include "spillway/base/error.h"
#include "spillway/planner/partition/partitioners.h"
#include "support/sanitized.h"

namespace spillway::partition {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// A choice of points, one per layer at most, tried with all others.
struct Actions {
  double seconds = 0.0;
  double saved = 0.0;
};

std::vector<Actions> all_actions(const SegmentCosts& costs, Segment segment) {
  const PartitionProblem& problem = costs.problem();
  std::vector<Actions> all{{}};
  bool leads = true;
  for (LayerIndex i = 0; i < costs.first_layer(segment.end); ++i) {
    const ModelLayer& layer = problem.chain.layers[i];
    leads &= layer.is_frozen;
    if (leads || i < costs.first_layer(segment.first)) continue;
    const std::size_t before = all.size();
    for (std::size_t k = 0; k < before; ++k)
      for (const RecomputePoint& point : layer.recompute)
        all.push_back({all[k].seconds + point.seconds * problem.devices[segment.stage].slowdown,
                       all[k].saved + static_cast<double>((layer.stash - point.stash).count())});
  }
  return all;
}

/// The least time within so many bytes, each layer recomputed whole or not.
double whole_seconds(const SegmentCosts& costs, Segment segment, double bytes) {
  const SegmentLoad load = costs.load(segment);
  const double rate = load.swap_rate.bytes_per_second();
  if (load.fixed_bytes > bytes) return kInfinite;
  const double excess = load.stash_bytes - (bytes - load.fixed_bytes) / load.in_flight;
  double least = kInfinite;
  for (const Actions& actions : all_actions(costs, segment)) {
    double seconds = std::max(load.seconds + actions.seconds, load.link_seconds);
    const double swapped = excess - actions.saved;
    if (swapped > 0 && rate == 0) continue;
    if (swapped > 0) seconds = std::max(seconds, swapped / rate);
    least = std::min(least, seconds);
  }
  return least;
}

double whole_bytes(const SegmentCosts& costs, Segment segment, double seconds) {
  const SegmentLoad load = costs.load(segment);
  double least = kInfinite;
  const double swapped = seconds * load.swap_rate.bytes_per_second();
  for (const Actions& actions : all_actions(costs, segment))
    if (load.seconds + actions.seconds <= seconds)
      least = std::min(
          least, load.fixed_bytes +
                     load.in_flight * std::max(0.0, load.stash_bytes - actions.saved - swapped));
  return least;
}

const ProblemShape kShape{.layers = 6, .stages = 3};
const ProblemShape kFewStages{.layers = 7, .stages = 2, .has_links = false};

TEST(Evaluate, FindsTheQuickestWholeLayers) {
  std::uint64_t rounded = 0;
  for (const ProblemShape& shape : {kShape, kFewStages}) {
    for_random_costs(tries(1000U, 100U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      const Cuts cuts = partitioner_named("even").cut(costs);
      const PartitionEstimate estimate = evaluate(costs, cuts);
      double worst = 0.0;
      for (std::uint32_t k = 0; k < costs.stages(); ++k) {
        const Segment segment{cuts[k], cuts[k + 1], k};
        const double expected = whole_seconds(costs, segment, costs.device_bytes(k));
        const StageEstimate& stage = estimate.stages[k];
        if (expected == kInfinite) {
          EXPECT_EQ(stage.seconds, kInfinite);
        } else {
          EXPECT_NEAR(stage.seconds, expected, 1e-9 * (1 + expected));
          EXPECT_LE(stage.memory.count(), costs.device_bytes(k));
        }
        EXPECT_GE(stage.raw_memory, estimate.fits ? stage.memory : Bytes());
        worst = std::max(worst, expected);
      }
      EXPECT_EQ(estimate.fits, worst < kInfinite);
      if (!estimate.fits) return;
      EXPECT_NEAR(estimate.seconds, worst, 1e-9 * (1 + worst));
      EXPECT_LE(estimate.fluid_seconds, estimate.seconds * (1 + 1e-12));
      rounded += estimate.rounding_gap > 1e-6;
    });
  }
  EXPECT_GT(rounded, tries(20U, 1U));
}

TEST(Evaluate, TellsWhichPointsItTook) {
  for_random_costs(tries(500U, 100U), kShape, [&](const SegmentCosts& costs, std::uint64_t seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Cuts cuts = partitioner_named("even").cut(costs);
    const PartitionEstimate estimate = evaluate(costs, cuts);
    for (std::uint32_t k = 0; k < costs.stages(); ++k) {
      const StageEstimate& stage = estimate.stages[k];
      double seconds = 0.0;
      double saved = 0.0;
      for (const ChosenPoint& chosen : stage.recomputed) {
        EXPECT_GE(chosen.layer, stage.first_layer);
        EXPECT_LE(chosen.layer, stage.last_layer);
        const ModelLayer& layer = costs.problem().chain.layers[chosen.layer];
        ASSERT_LT(chosen.point, layer.recompute.size());
        seconds += layer.recompute[chosen.point].seconds * costs.problem().devices[k].slowdown;
        saved += static_cast<double>((layer.stash - layer.recompute[chosen.point].stash).count());
      }
      EXPECT_NEAR(seconds, stage.recompute_seconds, 1e-9);
      if (stage.seconds == kInfinite) continue;
      const SegmentLoad load = costs.load({cuts[k], cuts[k + 1], k});
      const double kept = load.stash_bytes - saved - static_cast<double>(stage.swapped.count());
      EXPECT_NEAR(load.fixed_bytes + load.in_flight * kept,
                  static_cast<double>(stage.memory.count()), 1 + load.in_flight);
    }
  });
}

TEST(EvaluateMemory, FindsTheLeastMemoryOfWholeLayers) {
  for_random_costs(tries(2000U, 100U), kShape, [&](const SegmentCosts& costs, std::uint64_t seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const Cuts cuts = partitioner_named("even").cut(costs);
    const double seconds = evaluate(costs, cuts).fits ? evaluate(costs, cuts).seconds + 2.0 : 70.0;
    const PartitionEstimate estimate = evaluate_memory(costs, cuts, seconds);
    if (!estimate.fits) return;
    double worst = 0.0;
    for (std::uint32_t k = 0; k < costs.stages(); ++k)
      worst = std::max(worst, whole_bytes(costs, {cuts[k], cuts[k + 1], k}, seconds));
    EXPECT_NEAR(static_cast<double>(estimate.memory.count()), std::ceil(worst - 1e-9), 1.0);
    EXPECT_LE(estimate.fluid_bytes, worst * (1 + 1e-12));
    EXPECT_NEAR(estimate.rounding_gap * estimate.fluid_bytes, worst - estimate.fluid_bytes,
                1e-6 * (1 + worst));
  });
}

TEST(Evaluate, TheBestWholeLayersLieBetweenBoundAndPlan) {
  std::uint64_t best = 0;
  std::uint64_t compared = 0;
  for_random_costs(tries(2000U, 100U), kShape, [&](const SegmentCosts& costs, std::uint64_t seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const auto bound = least_time_cuts(costs);
    if (!bound) return;
    double optimum = kInfinite;
    for_all_cuts(costs.units(), costs.stages(), [&](const Cuts& cuts) {
      double worst = 0.0;
      for (std::uint32_t k = 0; k < costs.stages() && worst < optimum; ++k)
        worst =
            std::max(worst, whole_seconds(costs, {cuts[k], cuts[k + 1], k}, costs.device_bytes(k)));
      optimum = std::min(optimum, worst);
    });
    const PartitionEstimate plan = evaluate(costs, partitioner_named("spillway").cut(costs));
    EXPECT_LE(bound->worst, optimum * (1 + 1e-12));
    EXPECT_LE(optimum, plan.seconds * (1 + 1e-12));
    best += plan.seconds <= optimum * (1 + 1e-9);
    ++compared;
  });
  EXPECT_GT(compared, tries(500U, 20U));
  EXPECT_EQ(best, compared);
}

TEST(EvaluateMemory, InEndlessTimeNeedsNoLinkToSwapTo) {
  PartitionProblem problem;
  ModelLayer layer;
  layer.name = "l";
  layer.forward_seconds = layer.backward_seconds = 1.0;
  layer.stash = Bytes(100);
  layer.recompute = {{1.0, Bytes(30)}};
  problem.chain.layers = {layer, layer};
  problem.devices.assign(2, {.memory = Bytes(50)});
  const SegmentCosts costs(problem);
  const PartitionEstimate estimate = evaluate_memory(costs, {0, 1, 2}, kInfinite);
  EXPECT_TRUE(estimate.fits);
  EXPECT_EQ(estimate.memory, Bytes(30));
  EXPECT_EQ(estimate.stages[0].swapped, Bytes());
}

TEST(Evaluate, WhatFitsIsNotAByteOverTheDevice) {
  // So many micro-batches in flight that a device's share of each times their number may be more.
  ModelLayer layer;
  layer.name = "l";
  layer.forward_seconds = layer.backward_seconds = 1.0;
  layer.stash = Bytes(1'000'000);
  for (const double in_flight : {7.0, 11.0, 13.0, 49.0}) {
    for (std::uint64_t memory = 1; memory < 4000; ++memory) {
      PartitionProblem problem;
      problem.chain.layers = {layer};
      problem.devices = {
          {.memory = Bytes(memory), .swap_rate = TransferRate(10.0), .held = {in_flight}}};
      const SegmentCosts costs(std::move(problem));
      ASSERT_EQ(evaluate(costs, {0, 1}).memory, Bytes(memory)) << in_flight;
    }
  }
}

TEST(Evaluate, CountsTiedWeightsOfAStageOnce) {
  PartitionProblem problem;
  ModelLayer layer;
  layer.name = "l";
  layer.forward_seconds = layer.backward_seconds = 1.0;
  layer.parameters = Bytes(100);
  problem.chain.layers = {layer, layer, layer};
  problem.chain.ties = {{{0, 2}, Bytes(100)}};
  problem.devices.resize(1);
  EXPECT_EQ(evaluate(SegmentCosts(problem), {0, 3}).stages[0].parameters, Bytes(200));
  problem.devices.resize(2);
  const PartitionEstimate apart = evaluate(SegmentCosts(problem), {0, 1, 3});
  EXPECT_EQ(apart.stages[1].parameters, Bytes(200));
}

TEST(Evaluate, RefusesCutsThatAreNone) {
  PartitionProblem problem = random_problem(1, {.layers = 5, .stages = 2, .has_ties = false});
  const SegmentCosts costs(without_limits(problem));
  EXPECT_THROW(evaluate(costs, {0, 5}), PlanError);
  EXPECT_THROW(evaluate(costs, {0, 2, 4}), PlanError);
  EXPECT_THROW(evaluate(costs, {1, 2, 5}), PlanError);
  EXPECT_THROW(evaluate(costs, {0, 5, 5}), PlanError);
  EXPECT_THROW(evaluate_memory(costs, {0, 0, 5}, 1.0), PlanError);
  EXPECT_TRUE(evaluate(costs, {0, 2, 5}).fits);
}

}  // namespace
}  // namespace spillway::partition
