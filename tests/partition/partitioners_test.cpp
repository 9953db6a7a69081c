#include "spillway/planner/partition/partitioners.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "random_problems.h"
#include "spillway/base/error.h"
#include "support/sanitized.h"

namespace spillway::partition {
namespace {

PartitionProblem chain_of(const std::vector<double>& seconds, std::uint32_t stages) {
  PartitionProblem problem;
  for (const double each : seconds) {
    ModelLayer layer;
    layer.name = "l";
    layer.forward_seconds = each;
    layer.backward_seconds = 0.0;
    layer.parameters = Bytes(static_cast<std::uint64_t>(each));
    problem.chain.layers.push_back(layer);
  }
  problem.devices.resize(stages);
  return problem;
}

Cuts cut(const PartitionProblem& problem, std::string_view name) {
  return partitioner_named(name).cut(SegmentCosts(problem));
}

TEST(Partitioners, HaveNamesSummariesAndSources) {
  EXPECT_EQ(partitioners().front().name, "spillway");
  std::set<std::string_view> names;
  for (const Partitioner& each : partitioners()) {
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    EXPECT_FALSE(each.summary.empty()) << each.name;
    EXPECT_LE(each.summary.size(), 80U) << each.name;
    EXPECT_EQ(each.source.empty(), each.reading == Reading::kOurs) << each.name;
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"even", "parameters", "torchgpipe", "gpipe",
                                              "pipedream", "mcap", "capslog", "vpipe", "dawnpiper",
                                              "piper", "obscura", "galvatron"}));
  EXPECT_EQ(to_string(Reading::kInferred), "inferred");
  EXPECT_THROW(partitioner_named("pipedraem"), ConfigError);
}

TEST(Partitioners, GiveCutsOfEveryProblem) {
  for (const ProblemShape& shape :
       {ProblemShape{.layers = 6, .stages = 3}, ProblemShape{.layers = 9, .stages = 5},
        ProblemShape{.layers = 7, .stages = 1}, ProblemShape{.layers = 8, .stages = 4}}) {
    for_random_costs(tries(60U, 10U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      for (const Partitioner& each : partitioners()) {
        SCOPED_TRACE(::testing::Message() << each.name << " seed " << seed);
        try {
          check(costs, each.cut(costs));
        } catch (const PlanError& error) {
          EXPECT_THAT(error.what(), ::testing::HasSubstr("fit"));
          EXPECT_TRUE(each.name == "spillway" || each.name == "piper");
        }
      }
    });
  }
}

TEST(Partitioners, GiveCutsOfALongChain) {
  const SegmentCosts costs(without_limits(random_problem(5, {.layers = 300, .stages = 40})));
  for (const Partitioner& each : partitioners()) {
    SCOPED_TRACE(each.name);
    check(costs, each.cut(costs));
  }
}

/// Also by construction, where units times stages are at most 200,000; how ours does by itself, the
/// next test says.
TEST(Partitioners, NoneIsQuickerThanOurs) {
  std::map<std::string_view, int> slower;
  for (const ProblemShape& shape :
       {ProblemShape{.layers = 8, .stages = 3}, ProblemShape{.layers = 30, .stages = 6},
        ProblemShape{.layers = 12, .stages = 4, .has_borders = false, .differ = false},
        ProblemShape{.layers = 10, .stages = 4}}) {
    for_random_costs(tries(150U, 10U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      const auto bound = least_time_cuts(costs);
      if (!bound) {
        EXPECT_THROW(partitioner_named("spillway").cut(costs), PlanError);
        return;
      }
      const PartitionEstimate ours = evaluate(costs, partitioner_named("spillway").cut(costs));
      EXPECT_TRUE(ours.fits);
      for (const Partitioner& each : partitioners()) {
        SCOPED_TRACE(::testing::Message() << each.name << " seed " << seed);
        try {
          const PartitionEstimate other = evaluate(costs, each.cut(costs));
          EXPECT_GE(other.fluid_seconds, bound->worst * (1 - 1e-9));
          EXPECT_GE(other.seconds, ours.seconds * (1 - 1e-9));
          slower[each.name] += other.seconds > ours.seconds * (1 + 1e-9);
        } catch (const PlanError&) {
          EXPECT_EQ(each.name, "piper");
        }
      }
    });
  }
  for (const Partitioner& each : partitioners().subspan(1))
    EXPECT_GT(slower[each.name], 0) << each.name;
}

TEST(Partitioners, OursIsSeldomBeatenBeforeItLooksAtOthers) {
  // Ours takes the cuts of others where these are quicker in whole layers, so that the test above
  // cannot tell how good its own are. Its first cuts are the best for fractions.
  std::uint32_t compared = 0;
  std::uint32_t beaten = 0;
  double farthest = 0.0;
  for (const ProblemShape& shape :
       {ProblemShape{.layers = 8, .stages = 3}, ProblemShape{.layers = 30, .stages = 6},
        ProblemShape{.layers = 60, .stages = 4, .has_borders = false}}) {
    for_random_costs(tries(100U, 10U), shape, [&](const SegmentCosts& costs, std::uint64_t) {
      const auto own = balanced_time_cuts(costs);
      if (!own) return;
      const double seconds = evaluate(costs, own->cuts).seconds;
      double best = seconds;
      for (const Partitioner& each : partitioners().subspan(1)) {
        try {
          best = std::min(best, evaluate(costs, each.cut(costs)).seconds);
        } catch (const PlanError&) {
          EXPECT_EQ(each.name, "piper");
        }
      }
      ++compared;
      beaten += best < seconds * (1 - 1e-9);
      farthest = std::max(farthest, seconds / best - 1);
    });
  }
  RecordProperty("compared", static_cast<int>(compared));
  RecordProperty("beaten", static_cast<int>(beaten));
  RecordProperty("farthest_percent", static_cast<int>(100 * farthest));
  EXPECT_GT(compared, tries(200U, 15U));
  EXPECT_LE(beaten, 1 + compared / 20);
  EXPECT_LE(farthest, 0.1);
}

TEST(Even, CountsLayers) {
  EXPECT_THAT(cut(chain_of({9, 1, 1, 1, 1, 1, 1}, 3), "even"), ::testing::ElementsAre(0, 2, 4, 7));
}

TEST(Parameters, BalancesTheirBytes) {
  EXPECT_THAT(cut(chain_of({6, 1, 2, 3, 3, 3}, 3), "parameters"),
              ::testing::ElementsAre(0, 1, 4, 6));
}

TEST(Gpipe, HasTheLeastVarianceOfAllCuts) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const SegmentCosts costs(without_limits(
        random_problem(seed, {.layers = 9, .stages = 4, .has_borders = false, .has_ties = false})));
    const auto squares = [&](const Cuts& cuts) {
      double sum = 0.0;
      for (std::uint32_t k = 0; k < 4; ++k) {
        const double seconds = costs.layer_seconds(cuts[k], cuts[k + 1]);
        sum += seconds * seconds;
      }
      return sum;
    };
    double least = 1e300;
    for_all_cuts(9, 4, [&](const Cuts& cuts) { least = std::min(least, squares(cuts)); });
    EXPECT_EQ(squares(partitioner_named("gpipe").cut(costs)), least) << seed;
  }
}

TEST(Pipedream, AvoidsCutsOverLargeTensors) {
  PartitionProblem problem = chain_of({3, 3, 3, 3}, 2);
  problem.chain.borders = {{0, {1}, Bytes(1)}, {1, {2}, Bytes(100)}, {2, {3}, Bytes(2)}};
  problem.links = {{0.0, TransferRate(10.0)}};
  EXPECT_THAT(cut(problem, "pipedream"),
              ::testing::AnyOf(::testing::ElementsAre(0, 1, 4), ::testing::ElementsAre(0, 3, 4)));
  problem.links = {{0.0, TransferRate(100.0)}};
  EXPECT_THAT(cut(problem, "pipedream"), ::testing::ElementsAre(0, 2, 4));
}

PartitionProblem memory_chain(const std::vector<std::uint64_t>& stash, std::uint32_t stages) {
  PartitionProblem problem = chain_of(std::vector<double>(stash.size(), 1.0), stages);
  for (std::size_t i = 0; i < stash.size(); ++i) {
    problem.chain.layers[i].parameters = Bytes(0);
    problem.chain.layers[i].stash = Bytes(stash[i]);
  }
  return problem;
}

TEST(Capslog, FillsFromTheLeftAndIsTrappedByBorders) {
  PartitionProblem problem = memory_chain({20, 20, 20, 40}, 2);
  EXPECT_THAT(cut(problem, "capslog"), ::testing::ElementsAre(0, 3, 4));
  problem.chain.borders = {{2, {3}, Bytes(100)}};
  EXPECT_THAT(cut(problem, "capslog"), ::testing::ElementsAre(0, 3, 4));
  EXPECT_THAT(cut(problem, "mcap"), ::testing::ElementsAre(0, 2, 4));
}

TEST(Mcap, BeyondWhatCanBeEnumeratedDrawsTheSameCutsAgain) {
  std::vector<std::uint64_t> stash;
  for (std::uint64_t i = 0; i < 60; ++i) stash.push_back(20 + i * i * 7 % 31);
  const SegmentCosts costs(memory_chain(stash, 8));
  const auto peak = [&](const Cuts& cuts) {
    double worst = 0.0;
    for (std::uint32_t k = 0; k < 8; ++k)
      worst = std::max(worst, costs.load({cuts[k], cuts[k + 1], 0}).raw_bytes());
    return worst;
  };
  const double least = peak(partitioner_named("capslog").cut(costs));
  const double found = peak(partitioner_named("mcap").cut(costs));
  EXPECT_GE(found, least);
  EXPECT_LE(found, 5 * least);  // Of uniform draws the first stages get most.
  EXPECT_EQ(partitioner_named("mcap").cut(costs), partitioner_named("mcap").cut(costs));
}

TEST(Vpipe, TakesLayersFromStagesThatMustRecompute) {
  // Equal layers; the first stage holds four micro-batches and has to recompute half of them.
  PartitionProblem problem = memory_chain(std::vector<std::uint64_t>(24, 10), 4);
  for (ModelLayer& layer : problem.chain.layers) layer.recompute = {{0.5, Bytes(0)}};
  problem.devices.assign(4, {.memory = Bytes(120)});
  problem.devices[0].held.in_flight = 4;
  const Cuts cuts = cut(problem, "vpipe");
  EXPECT_LT(cuts[1], 6U);
  const SegmentCosts costs(problem);
  EXPECT_LT(evaluate(costs, cuts).fluid_seconds,
            evaluate(costs, partitioner_named("even").cut(costs)).fluid_seconds);
}

TEST(Dawnpiper, CutsTwoStagesBetweenBothBalances) {
  // Time balances at 6, memory at 3.
  PartitionProblem problem = memory_chain({40, 40, 40, 10, 10, 10, 10, 10, 10, 10, 10, 10}, 2);
  problem.devices.assign(2, {.memory = Bytes(130), .swap_rate = TransferRate(10.0)});
  const Cuts cuts = cut(problem, "dawnpiper");
  EXPECT_GE(cuts[1], 3U);
  EXPECT_LE(cuts[1], 6U);
  const SegmentCosts costs(problem);
  EXPECT_NEAR(evaluate(costs, cuts).fluid_seconds, least_time_cuts(costs)->worst, 1e-9);
}

TEST(Galvatron, TrimsWhatIsFarAboveTheMean) {
  const Cuts cuts = cut(memory_chain({10, 10, 10, 10, 10, 10, 10, 10}, 4), "galvatron");
  EXPECT_THAT(cuts, ::testing::ElementsAre(0, 2, 4, 6, 8));
}

TEST(Obscura, MovesLayersToStagesThatNeedNoHelp) {
  PartitionProblem problem = memory_chain(std::vector<std::uint64_t>(16, 10), 4);
  for (ModelLayer& layer : problem.chain.layers) layer.recompute = {{0.75, Bytes(0)}};
  for (std::uint32_t k = 0; k < 4; ++k)
    problem.devices[k] = {.memory = Bytes(80), .held = {4.0 - k}};
  EXPECT_THAT(cut(problem, "obscura"), ::testing::Not(::testing::ElementsAre(0, 4, 8, 12, 16)));
  for (StageDevice& device : problem.devices) device.memory = Bytes(1000);
  EXPECT_THAT(cut(problem, "obscura"), ::testing::ElementsAre(0, 4, 8, 12, 16));
}

TEST(Piper, RefusesWhatOnlySwapsCouldSave) {
  PartitionProblem problem = memory_chain({50, 50}, 2);
  problem.devices.assign(2, {.memory = Bytes(20), .swap_rate = TransferRate(10.0)});
  EXPECT_THROW(cut(problem, "piper"), PlanError);
  EXPECT_THAT(cut(problem, "spillway"), ::testing::ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace spillway::partition
