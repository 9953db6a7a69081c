#include "spillway/pipeline/balance/balancer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace spillway::pipeline {
namespace {

using First = std::vector<std::size_t>;  // Unit of each stage.

/// A model on ranks, and what their steps take.
struct Training {
  std::vector<double> seconds;    ///< Of a micro-batch, by unit, on a rank of slowdown 1.
  std::vector<double> slowdowns;  ///< By rank.
  std::uint64_t micro_batches = 4;

  std::vector<ModelUnit> units() const {
    std::vector<ModelUnit> made(seconds.size());
    for (ModelUnit& unit : made) unit = {.parameter = 100_KiB, .kept = 400_KiB, .stash = 50_KiB};
    return made;
  }
  /// Stage s on rank s.
  MeasuredStep step(const First& first) const {
    MeasuredStep made{micro_batches, {}};
    for (std::size_t rank = 0; rank < first.size(); ++rank) {
      made.seconds.emplace_back(seconds.size());
      const std::size_t end = rank + 1 < first.size() ? first[rank + 1] : seconds.size();
      for (std::size_t unit = first[rank]; unit < end; ++unit) {
        const double taken = seconds[unit] * slowdowns[rank] * static_cast<double>(micro_batches);
        made.seconds[rank][unit] = {static_cast<float>(taken / 3),
                                    static_cast<float>(taken * 2 / 3)};
      }
    }
    return made;
  }
  double slowest(const First& first) const {
    double worst = 0;
    for (std::size_t rank = 0; rank < first.size(); ++rank) {
      const std::size_t end = rank + 1 < first.size() ? first[rank + 1] : seconds.size();
      double sum = 0;
      for (std::size_t unit = first[rank]; unit < end; ++unit) sum += seconds[unit];
      worst = std::max(worst, sum * slowdowns[rank]);
    }
    return worst;
  }
  /// Of all cuts.
  double best() const {
    double least = std::numeric_limits<double>::infinity();
    First first(slowdowns.size(), 0);
    const std::function<void(std::size_t)> draw = [&](std::size_t stage) {
      if (stage == first.size()) {
        least = std::min(least, slowest(first));
        return;
      }
      for (std::size_t unit = first[stage - 1] + 1; unit < seconds.size(); ++unit) {
        first[stage] = unit;
        draw(stage + 1);
      }
    };
    draw(1);
    return least;
  }
};

BalancerOptions options_for(std::size_t ranks) {
  return {.budgets = std::vector<Bytes>(ranks, 1_GiB), .in_flight = std::vector<double>(ranks, 1)};
}

Placement placement_of(std::uint32_t stages, bool has_reverse) {
  schedule::Schedule schedule;
  schedule.stages = stages;
  schedule.micro_batches = 1;
  schedule.placement.push_back(schedule::round_placement(stages, stages));
  if (has_reverse) schedule.placement.push_back(schedule::reversed_placement(stages));
  schedule.ranks.resize(stages);
  return Placement(schedule);
}

Placement placement_in_order(std::uint32_t stages) { return placement_of(stages, false); }
Placement two_inverted_stages() { return placement_of(2, true); }

Balancer balancer_for(std::uint32_t ranks) {
  return Balancer(placement_in_order(ranks), options_for(ranks));
}

/// Steps and cuts until these stay; how many times they moved.
int settle(Balancer& balancer, const Training& training, First& first) {
  int moves = 0;
  for (; moves < 20; ++moves) {
    balancer.add(training.step(first));
    balancer.add(training.step(first));
    balancer.add(training.step(first));
    const auto recut = balancer.look(training.units(), {}, first);
    if (!recut) break;
    EXPECT_LT(recut->seconds_after, recut->seconds_before);
    first = recut->first_of_stage;
    balancer.forget();
  }
  return moves;
}

TEST(Balancer, LeavesEvenStagesAlone) {
  Balancer balancer = balancer_for(2);
  First first{0, 4};
  EXPECT_EQ(settle(balancer, {std::vector<double>(8, 0.1), {1, 1}}, first), 0);
}

TEST(Balancer, WaitsForTwoSteps) {
  const Training training{{5, 1, 1, 1, 1, 1}, {1, 1}};
  Balancer balancer = balancer_for(2);
  balancer.add(training.step({0, 3}));
  EXPECT_FALSE(balancer.look(training.units(), {}, {0, 3}));
  balancer.add(training.step({0, 3}));
  const auto recut = balancer.look(training.units(), {}, {0, 3});
  ASSERT_TRUE(recut);
  EXPECT_EQ(recut->first_of_stage, (First{0, 1}));
  EXPECT_NEAR(recut->seconds_before, 7, 1e-5);
  EXPECT_NEAR(recut->seconds_after, 5, 1e-5);
  EXPECT_EQ(recut->units, 2u);
  EXPECT_EQ(recut->bytes, 800_KiB);
}

TEST(Balancer, TellsWhatStepsTookBehindACut) {
  Training training{{5, 1, 1, 1, 1, 1}, {1, 1}};
  Balancer balancer = balancer_for(2);
  for (int i = 0; i < 2; ++i) balancer.add(training.step({0, 3}));
  const auto recut = balancer.look(training.units(), {}, {0, 3});
  ASSERT_TRUE(recut);
  EXPECT_NEAR(balancer.slowest_seconds(), 7, 1e-5);
  balancer.forget();
  training.slowdowns = {1.05, 1.05};  // Not what it was to be: 5.
  for (int i = 0; i < 2; ++i) balancer.add(training.step(recut->first_of_stage));
  EXPECT_FALSE(balancer.look(training.units(), {}, recut->first_of_stage));
  EXPECT_NEAR(balancer.slowest_seconds(), 5.25, 1e-5);
}

TEST(Balancer, ComesNearTheBestOfAllCuts) {
  std::mt19937_64 draws(1);
  for (int seed = 0; seed < 300; ++seed) {
    Training training;
    training.slowdowns.assign(2 + draws() % 3, 1);
    training.seconds.resize(training.slowdowns.size() + draws() % 10);
    for (double& one : training.seconds) one = 0.001 * static_cast<double>(1 + draws() % 50);
    First first;
    for (std::size_t i = 0; i < training.slowdowns.size(); ++i) first.push_back(i);
    Balancer balancer = balancer_for(static_cast<std::uint32_t>(first.size()));
    EXPECT_LT(settle(balancer, training, first), 3);
    // Less than a tenth is not worth a move, and two hundredths are no difference.
    EXPECT_LE(training.slowest(first) * 0.88, training.best()) << seed;
  }
}

TEST(Balancer, TakesUnitsFromARankThatBecameSlow) {
  std::mt19937_64 draws(2);
  for (int seed = 0; seed < 100; ++seed) {
    Training training;
    training.slowdowns.assign(4, 1);
    for (int i = 0; i < 24; ++i)
      training.seconds.push_back(0.001 * static_cast<double>(10 + draws() % 10));
    First first{0, 6, 12, 18};
    Balancer balancer = balancer_for(4);
    settle(balancer, training, first);
    const std::size_t slow = draws() % 4;
    training.slowdowns[slow] = 2;
    const double before = training.slowest(first);
    EXPECT_GT(settle(balancer, training, first), 0);
    EXPECT_NEAR(balancer.slowdown_of(Rank(static_cast<std::uint32_t>(slow))), 2, 0.01);
    EXPECT_LT(training.slowest(first), 0.8 * before);
    EXPECT_LE(training.slowest(first) * 0.88, training.best()) << seed;
    training.slowdowns[slow] = 1;
    settle(balancer, training, first);
    EXPECT_LE(training.slowest(first) * 0.88, training.best()) << seed;
  }
}

TEST(Balancer, FindsRanksThatDifferFromTheStart) {
  Training training{std::vector<double>(24, 0.01), {1, 1, 3, 1}};
  First first{0, 6, 12, 18};
  Balancer balancer = balancer_for(4);
  EXPECT_LT(settle(balancer, training, first), 10);
  EXPECT_LE(training.slowest(first), 1.35 * training.best());
}

TEST(Balancer, PartsNothingThatOneOperatorUses) {
  const Training training{{4, 4, 4, 1, 1, 1}, {1, 1}};
  std::vector<ModelUnit> units = training.units();
  units[1].is_joined = units[2].is_joined = true;
  for (const First& first : {First{0, 5}, First{0, 0}}) {
    Balancer balancer = balancer_for(2);
    balancer.add(training.step(first));
    balancer.add(training.step(first));
    const auto recut = balancer.look(units, {}, first);
    ASSERT_TRUE(recut);
    EXPECT_EQ(recut->first_of_stage, (First{0, 3}));
  }
}

TEST(Balancer, KeepsToBudgets) {
  const Training training{{1, 1, 1, 1, 1, 1, 1, 1}, {1, 1}};
  BalancerOptions options = options_for(2);
  options.budgets = {1300_KiB, 4_MiB};
  options.swap_rate = TransferRate();
  Balancer balancer(placement_in_order(2), options);
  const First first{0, 4};
  balancer.add(training.step(first));
  balancer.add(training.step(first));
  const auto recut = balancer.look(training.units(), {}, first);
  ASSERT_TRUE(recut);
  EXPECT_EQ(recut->first_of_stage, (First{0, 2}));  // 450 KiB a unit.
}

TEST(Balancer, TakesTimesAloneWhereNothingFits) {
  const Training training{{5, 1, 1, 1}, {1, 1}};
  BalancerOptions options = options_for(2);
  options.budgets = {1_KiB, 1_KiB};
  Balancer balancer(placement_in_order(2), options);
  balancer.add(training.step({0, 3}));
  balancer.add(training.step({0, 3}));
  const auto recut = balancer.look(training.units(), {}, {0, 3});
  ASSERT_TRUE(recut);
  EXPECT_EQ(recut->first_of_stage, (First{0, 1}));
}

TEST(Balancer, CutsWhereLittleCrosses) {
  const Training training{{1, 1, 1, 1, 1, 1, 1, 1}, {1, 1}};
  BalancerOptions options = options_for(2);
  options.link_rates = {TransferRate(1024 * 1024)};
  Balancer balancer(placement_in_order(2), options);
  const First first{0, 4};
  balancer.add(training.step(first));
  balancer.add(training.step(first));
  const auto recut = balancer.look(training.units(), {{3, {4}, 100_MiB}}, first);
  ASSERT_TRUE(recut);
  EXPECT_NE(recut->first_of_stage[1], 4u);
}

TEST(Balancer, LeavesAModelAloneThatHasFewerGroupsThanStages) {
  const Training training{{4, 1}, {1, 1}};
  std::vector<ModelUnit> units = training.units();
  units[1].is_joined = true;
  Balancer balancer = balancer_for(2);
  balancer.add(training.step({0, 2}));
  balancer.add(training.step({0, 2}));
  EXPECT_FALSE(balancer.look(units, {}, {0, 2}));
}

TEST(Balancer, TakesTheTimesOfModelsThatTrainByTurns) {
  Training training{{1, 1, 6, 1}, {1, 1}};
  Balancer balancer = balancer_for(2);
  const First first{0, 2};
  for (int i = 0; i < 4; ++i) {
    MeasuredStep step = training.step(first);
    for (auto& of_rank : step.seconds)
      for (std::size_t unit = i % 2; unit < 4; unit += 2) of_rank[unit] = {};
    balancer.add(step);
    if (i == 0) {
      EXPECT_FALSE(balancer.look(training.units(), {}, first));
    }
  }
  const auto recut = balancer.look(training.units(), {}, first);
  EXPECT_FALSE(recut && recut->units == 0);
  EXPECT_EQ(balancer.slowdown_of(Rank(0)), 1);
  EXPECT_EQ(balancer.slowdown_of(Rank(1)), 1);
}

TEST(Balancer, CountsWhatARankHasComputed) {
  // One micro-batch: only the first placement has computed anything.
  Balancer balancer(two_inverted_stages(), options_for(2));
  Training training{std::vector<double>(6, 1), {1, 1}};
  training.micro_batches = 1;
  balancer.add(training.step({0, 3}));
  balancer.add(training.step({0, 3}));
  EXPECT_FALSE(balancer.look(training.units(), {}, {0, 3}));
}

TEST(Balancer, GivesPartsThatAreGoneNoTime) {
  const Training training{{9, 1, 1, 1, 1}, {1, 1}};
  std::vector<ModelUnit> units = training.units();
  units[0] = {};
  units[0].has_ended = true;
  Balancer balancer = balancer_for(2);
  balancer.add(training.step({0, 1}));
  balancer.add(training.step({0, 1}));
  const auto recut = balancer.look(units, {}, {0, 1});
  ASSERT_TRUE(recut);
  EXPECT_EQ(recut->first_of_stage, (First{0, 3}));
}

TEST(Balancer, KnowsNothingOfAnotherModel) {
  // Ten times as quick, and its work lies elsewhere.
  Training one{{9, 9, 1, 1}, {1, 1}}, other{{0.1, 0.1, 0.9, 0.9}, {1, 1}};
  Balancer balancer = balancer_for(2);
  for (int i = 0; i < 3; ++i) balancer.add(one.step({0, 1}));
  EXPECT_FALSE(balancer.look(one.units(), {}, {0, 1}));
  balancer.forget_model();
  EXPECT_FALSE(balancer.knows_enough());
  for (int i = 0; i < 3; ++i) balancer.add(other.step({0, 2}));
  const auto recut = balancer.look(other.units(), {}, {0, 2});
  ASSERT_TRUE(recut);
  EXPECT_EQ(recut->first_of_stage, (First{0, 3}));
  for (std::uint32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(balancer.slowdown_of(Rank(rank)), 1);
}

TEST(Balancer, CountsTurnsOfInvertedPlacements) {
  Balancer balancer(two_inverted_stages(), options_for(2));
  MeasuredStep step{4, {}};
  // Both ranks compute both stages, for two micro-batches each.
  step.seconds.assign(2, std::vector<UnitSeconds>(6, {1, 1}));
  for (auto& of_rank : step.seconds) of_rank[0] = {5, 5};
  balancer.add(step);
  balancer.add(step);
  const auto recut = balancer.look(Training{std::vector<double>(6), {1, 1}}.units(), {}, {0, 3});
  ASSERT_TRUE(recut);
  EXPECT_EQ(recut->first_of_stage, (First{0, 1}));
  EXPECT_NEAR(recut->seconds_before, 7, 1e-5);
  EXPECT_NEAR(recut->seconds_after, 5, 1e-5);
}

}  // namespace
}  // namespace spillway::pipeline
