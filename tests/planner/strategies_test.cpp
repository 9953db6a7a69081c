#include "spillway/planner/strategies.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <set>
#include <string>

#include "exhaustive.h"
#include "layer_chains.h"
#include "random_tapes.h"
#include "spillway/base/error.h"
#include "spillway/planner/step_bound.h"
#include "support/error_text.h"
#include "support/golden_part.h"
#include "support/sanitized.h"
#include "tiny_steps.h"

namespace spillway::planner {

extern const Strategy kMine;  // The one that the README shows.

namespace {

SwapLimits limits_for(std::uint32_t budget_pages) {
  SwapLimits limits;
  limits.budget_pages = budget_pages;
  limits.refinement_ops = 2000;
  return limits;
}

StepTape even_chain(std::uint32_t layers) {
  return layer_chain(std::vector<ChainLayer>(layers, {.output = 2, .inside = 3}));
}

StepTape random_step(std::uint64_t seed) {
  return random_tape(seed, {.ops = static_cast<std::uint32_t>(5 + seed % 40),
                            .persistent = static_cast<std::uint32_t>(1 + seed % 4),
                            .max_uses = static_cast<std::uint32_t>(1 + seed % 4),
                            .has_long_lives = seed / 50 % 2 == 1,
                            .replayable_percent = seed % 3 == 0 ? 100U : 70U});
}

/// What every plan promises, whoever made it.
void expect_sound(const Strategy& strategy, const StepTape& tape, const StepPlan& plan,
                  const SwapLimits& limits) {
  EXPECT_EQ(plan.strategy, strategy.name);
  profile::check(plan.steps.tape);
  EXPECT_EQ(plan.steps.tape.ops.size(), tape.ops.size() + plan.replays.size());
  EXPECT_NEAR(plan.replay_seconds, replay_seconds(tape, plan.replays), 1e-12);
  const StepEstimate& estimate = plan.swaps.estimate;
  const StepEstimate again = estimate_step(plan.steps.tape, plan.swaps, limits);
  EXPECT_EQ(estimate.step_seconds, again.step_seconds);
  EXPECT_EQ(estimate.is_complete, again.is_complete);
  EXPECT_EQ(plan.swaps.is_feasible, smallest_budget(plan.steps.tape) <= limits.budget_pages);
  if (!plan.swaps.is_feasible) return;
  EXPECT_TRUE(estimate.is_complete);
  const double compute_seconds = bound_plan(tape, limits).compute_seconds;
  EXPECT_GE(estimate.step_seconds * 1.000001, compute_seconds + plan.replay_seconds);
  EXPECT_LE(estimate.peak_pages, limits.budget_pages);
}

// What those promise that are here now. A new one need not.
const std::set<std::string_view> kPlanEveryStep{"spillway", "offload-only", "demand",
                                                "belady",   "swap-all",     "checkpoint-sqrt",
                                                "dtr",      "capuchin",     "karma"};
const std::set<std::string_view> kRecompute{"checkpoint-sqrt", "rotor", "dtr", "capuchin"};
const std::set<std::string_view> kSearch{"spillway", "offload-only", "dtr", "capuchin", "karma"};
const std::set<std::string_view> kPublished{"demand", "belady", "swap-all", "checkpoint-sqrt",
                                            "rotor",  "dtr",    "capuchin", "karma"};

/// The plan, or none where the strategy refuses such a step by a PlanError that says what to do.
std::optional<StepPlan> plan_or_refusal(const Strategy& strategy, const StepTape& tape,
                                        const SwapLimits& limits,
                                        const StopCheck& should_stop = {}) {
  try {
    return strategy.plan(tape, limits, should_stop);
  } catch (const PlanError& refusal) {
    EXPECT_FALSE(kPlanEveryStep.contains(strategy.name)) << refusal.what();
    EXPECT_THAT(refusal.what(), ::testing::HasSubstr("spillway"));
    return std::nullopt;
  }
}

class AllStrategies : public ::testing::TestWithParam<std::string_view> {
 protected:
  const Strategy& strategy() const { return strategy_named(GetParam()); }
};

std::vector<std::string_view> all_names() {
  std::vector<std::string_view> names;
  for (const Strategy& strategy : strategies()) names.push_back(strategy.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Names, AllStrategies, ::testing::ValuesIn(all_names()),
                         [](const auto& tested) {
                           std::string name(tested.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(AllStrategies, MovesAndRecomputesNothingWhereEverythingFits) {
  for (const StepTape& tape : {even_chain(6), random_step(7), StepTape{}}) {
    const SwapLimits limits = limits_for(std::max(1U, live_peak(tape)));
    const StepPlan plan = strategy().plan(tape, limits);
    expect_sound(strategy(), tape, plan, limits);
    EXPECT_TRUE(plan.replays.empty());
    EXPECT_TRUE(plan.swaps.swaps.empty());
    EXPECT_EQ(plan.swaps.estimate.read_pages + plan.swaps.estimate.written_pages, 0U);
  }
}

TEST_P(AllStrategies, PlansChainsUnderEveryBudget) {
  for (const std::uint32_t layers : {3U, 12U}) {
    const StepTape tape = even_chain(layers);
    const std::uint32_t least = smallest_budget(tape);
    for (std::uint32_t budget = least > 2 ? least - 2 : 1; budget < live_peak(tape); ++budget) {
      SCOPED_TRACE(::testing::Message() << layers << " layers, budget " << budget);
      const SwapLimits limits = limits_for(budget);
      const auto plan = plan_or_refusal(strategy(), tape, limits);
      const bool may_refuse = layers > 3 && strategy().name != "rotor";  // It is made for chains.
      EXPECT_TRUE(plan || may_refuse) << "refused a chain";
      if (plan) expect_sound(strategy(), tape, *plan, limits);
    }
  }
}

TEST_P(AllStrategies, PlansRandomStepsWithWritesInPlace) {
  // Our own search takes longest, and has tests of its own.
  const bool is_slow = strategy().name == "spillway";
  const std::uint64_t seeds = is_slow ? tries(12U, 4U) : tries(400U, 40U);
  std::uint32_t plans = 0;
  std::uint32_t with_replays = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const StepTape tape = random_step(seed);
    const std::uint32_t least = smallest_budget(tape);
    const std::uint32_t most = std::max(live_peak(tape), least);
    const std::uint32_t budget =
        std::max(1U, least + static_cast<std::uint32_t>((most - least) * (seed % 5) / 5));
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " budget " << budget);
    const SwapLimits limits = limits_for(budget);
    const auto plan = plan_or_refusal(strategy(), tape, limits);
    if (!plan) continue;
    expect_sound(strategy(), tape, *plan, limits);
    ++plans;
    if (!plan->replays.empty()) ++with_replays;
  }
  EXPECT_GT(plans, 2U);
  if (kRecompute.contains(strategy().name)) {
    EXPECT_GT(with_replays, tries(5U, 0U));
  }
  RecordProperty("plans", static_cast<int>(plans));
  RecordProperty("with_replays", static_cast<int>(with_replays));
}

TEST_P(AllStrategies, EndsSoonAfterItIsTold) {
  bool has_asked = false;
  for (const StepTape& tape : {tiny_step(1), even_chain(300), even_chain(2000)}) {
    const SwapLimits limits = limits_for(std::max(smallest_budget(tape), live_peak(tape) / 3));
    for (const int after : {1, 2, 5}) {
      int asked = 0;
      const auto plan = plan_or_refusal(strategy(), tape, limits, [&] { return ++asked >= after; });
      if (plan) expect_sound(strategy(), tape, *plan, limits);
      EXPECT_LE(asked, after + 12) << "went on although it was told to stop";
      has_asked |= asked > 0;
    }
  }
  EXPECT_TRUE(has_asked || !kSearch.contains(strategy().name)) << "never asked";
}

TEST_P(AllStrategies, RefusesSenselessLimitsAndTapes) {
  EXPECT_THROW(strategy().plan(even_chain(3), limits_for(0)), ConfigError);
  StepTape broken = even_chain(3);
  broken.uses[0].value = 1000;
  EXPECT_THROW(strategy().plan(broken, limits_for(8)), PlanError);
}

TEST_P(AllStrategies, SaysWhatItDoesAndFollows) {
  EXPECT_FALSE(strategy().summary.empty());
  EXPECT_LE(strategy().summary.size(), kMostSummaryLetters);
  EXPECT_TRUE(!strategy().source.empty() || !kPublished.contains(strategy().name));
}

TEST(Strategies, HaveNamesOfTheirOwnAndOursIsFirst) {
  std::set<std::string_view> names;
  for (const Strategy& strategy : strategies()) names.insert(strategy.name);
  EXPECT_EQ(names.size(), strategies().size());
  EXPECT_EQ(strategies().front().name, "spillway");
}

TEST(Strategies, RefuseAnUnknownNameWithTheNearest) {
  GoldenPart golden;
  golden.add(error_text<ConfigError>([&] { strategy_named("checkpoint-sqr"); }));
}

TEST(Strategies, CanBeAddedAsTheReadmeSays) {
  const StepTape tape = even_chain(12);
  const SwapLimits limits = limits_for(smallest_budget(tape) + 2);
  const StepPlan plan = kMine.plan(tape, limits);
  expect_sound(kMine, tape, plan, limits);
  const StepEstimate paged = strategy_named("belady").plan(tape, limits).swaps.estimate;
  EXPECT_GT(paged.read_pages, 0U);
  EXPECT_EQ(plan.swaps.estimate.step_seconds, paged.step_seconds);
}

TEST(CheckpointSqrt, HoldsAboutTwoRootsOfTheLayers) {
  for (const std::uint32_t layers : {16U, 64U, 256U}) {
    const StepTape tape = layer_chain(std::vector<ChainLayer>(layers, {.output = 1, .inside = 0}));
    const SwapLimits limits = limits_for(layers / 2);
    const StepPlan plan = strategy_named("checkpoint-sqrt").plan(tape, limits);
    const double root = std::sqrt(static_cast<double>(layers));
    // sqrt(n) kept ones and a segment of sqrt(n), the input, and two gradients.
    EXPECT_LE(live_peak(plan.steps.tape), 2.0 * root + 3.0) << layers;
    EXPECT_LT(plan.replays.size(), layers) << "nothing runs again twice";
  }
}

/// These two fit a chain into a budget by recomputation alone, so nothing moves.
TEST(RecomputeOnly, MovesNothingWhereItFits) {
  const StepTape tape = even_chain(24);
  for (const char* name : {"rotor", "dtr"}) {
    double before = 1e9;
    for (std::uint32_t budget = 40; budget < live_peak(tape); budget += 8) {
      SCOPED_TRACE(::testing::Message() << name << " budget " << budget);
      const StepPlan plan = strategy_named(name).plan(tape, limits_for(budget));
      EXPECT_EQ(plan.swaps.estimate.read_pages + plan.swaps.estimate.written_pages, 0U);
      EXPECT_LE(live_peak(plan.steps.tape), budget);
      EXPECT_GT(plan.replay_seconds, 0.0);
      EXPECT_LE(plan.replay_seconds, before) << "more room is never worse on an even chain";
      before = plan.replay_seconds;
    }
  }
}

TEST(Rotor, RefusesStepsThatAreNoChain) {
  StepTape tape = even_chain(6);
  for (auto& op : tape.ops) op.is_replayable = false;
  EXPECT_THROW(strategy_named("rotor").plan(tape, limits_for(20)), PlanError);
}

/// Layers of a convolution that may run again, a norm that may not, and an activation in place on
/// what the norm has made. Backward reads both.
StepTape chain_with_fixed_norms(std::uint32_t layers) {
  StepTape tape;
  tape.values.push_back({.pages = 2, .becomes = 0});
  const auto op = [&](std::vector<profile::TapeUse> uses, std::uint32_t pages, bool may_run) {
    tape.ops.push_back({.signature = tape.ops.size() + 1,
                        .time = std::chrono::milliseconds(1),
                        .first_use = static_cast<std::uint32_t>(tape.uses.size()),
                        .use_count = static_cast<std::uint32_t>(uses.size()),
                        .inside_peak_pages = pages,
                        .is_replayable = may_run});
    tape.uses.insert(tape.uses.end(), uses.begin(), uses.end());
    if (pages > 0)
      tape.values.push_back({.pages = pages,
                             .birth = static_cast<OpIndex>(tape.ops.size() - 1),
                             .death = profile::kSurvives});
    return static_cast<ValueIndex>(tape.values.size() - 1);
  };
  std::vector<std::pair<ValueIndex, ValueIndex>> made;
  ValueIndex last = 0;
  for (std::uint32_t i = 0; i < layers; ++i) {
    const ValueIndex wide = op({{last, false}}, 2, true);
    last = op({{wide, false}}, 2, false);
    op({{last, true}}, 0, true);
    const ValueIndex head = op({{last, false}}, 2, true);
    made.emplace_back(wide, last);
    last = head;
    made.emplace_back(head, head);
  }
  for (std::size_t i = made.size(); i-- > 0;) {
    op({{made[i].first, false}, {made[i].second, false}}, 0, false);
    tape.values[made[i].first].death = tape.values[made[i].second].death =
        static_cast<OpIndex>(tape.ops.size() - 1);
  }
  return tape;
}

TEST(Rotor, LeavesWhatWasWrittenInPlaceAndCannotBeMadeAgain) {
  const StepTape tape = chain_with_fixed_norms(8);
  const SwapLimits limits = limits_for(live_peak(tape) * 3 / 4);
  const StepPlan plan = strategy_named("rotor").plan(tape, limits);
  expect_sound(strategy_named("rotor"), tape, plan, limits);
  EXPECT_FALSE(plan.replays.empty());
}

TEST(Dtr, GoesBackOverAnyNumberOfOperators) {
  // Hardly anything stays, so each need of backward goes back to the begin of the step.
  const StepTape tape = layer_chain(std::vector<ChainLayer>(30'000, {.output = 1, .inside = 0}));
  const SwapLimits limits = limits_for(4);
  const StepPlan plan = strategy_named("dtr").plan(tape, limits);
  EXPECT_GT(plan.replays.size(), 30'000U);
}

TEST(Dtr, KeepsWhatTheProgramHasFreedOnceManyNeedIt) {
  // Operator 0 makes a value that is freed in forward; what operators 1 to 4 make of it leads over.
  StepTape tape;
  tape.values.push_back({.pages = 1, .birth = 0, .death = 4});
  const auto add_op = [&](ValueIndex uses, std::uint32_t time, std::uint32_t makes) {
    tape.ops.push_back({.signature = tape.ops.size() + 1,
                        .time = std::chrono::microseconds(time),
                        .first_use = static_cast<std::uint32_t>(tape.uses.size()),
                        .use_count = uses == profile::kNoValue ? 0U : 1U,
                        .inside_peak_pages = makes,
                        .is_replayable = makes > 0});
    if (uses != profile::kNoValue) tape.uses.push_back({uses, false});
  };
  add_op(profile::kNoValue, 1000, 1);
  for (ValueIndex i = 1; i <= 4; ++i) {
    add_op(0, 10, 4);
    tape.values.push_back({.pages = 4, .birth = i, .death = 9 - i});
  }
  for (ValueIndex i = 4; i >= 1; --i) add_op(i, 100, 0);
  const StepPlan plan = strategy_named("dtr").plan(tape, limits_for(6));
  EXPECT_EQ(std::count_if(plan.replays.begin(), plan.replays.end(),
                          [](const Replay& replay) { return replay.op == 0; }),
            1);
  EXPECT_EQ(plan.swaps.estimate.read_pages, 0U);
}

/// A link so slow that only what others recompute helps, and an end before our own search has
/// begun.
TEST(Spillway, IsNeverSlowerThanOthersOnAPlainChain) {
  const StepTape tape =
      layer_chain(std::vector<ChainLayer>(600, {.output = 1, .forward = 1000, .backward = 2000}));
  for (const std::uint32_t percent : {5U, 25U}) {
    SwapLimits limits = limits_for(live_peak(tape) * percent / 100);
    limits.rates = {.write = TransferRate(2.5e8), .read = TransferRate(2.5e8)};
    std::size_t left = 4000;  // Times that it asks: some tenths of a second.
    PlanEffort effort;
    effort.should_stop = [&] { return left == 0 || --left == 0; };
    const double ours = plan_step(tape, limits, effort).swaps.estimate.step_seconds;
    for (const Strategy& other : strategies()) {
      if (!other.is_start) continue;
      EXPECT_LE(ours, other.plan(tape, limits).swaps.estimate.step_seconds) << other.name;
    }
  }
}

TEST(SwapAll, TakesEveryActivationOutAndBringsItBackOneNeedAhead) {
  const std::uint32_t layers = 5;
  const StepTape tape = layer_chain(std::vector<ChainLayer>(layers, {.output = 1, .inside = 0}));
  const StepPlan plan = strategy_named("swap-all").plan(tape, limits_for(live_peak(tape) - 1));
  // Outputs 1 to 3 of 5; backward begins with the last two.
  ASSERT_EQ(plan.swaps.swaps.size(), 3U);
  for (const PlannedSwap& swap : plan.swaps.swaps) {
    EXPECT_EQ(swap.leave, swap.value);                    // Layer i + 1 reads output i.
    EXPECT_EQ(swap.needed, 2 * layers - 1 - swap.value);  // So does its backward.
    EXPECT_EQ(swap.fetch, swap.needed - 1);
  }
}

TEST(Demand, EvictsWhatWasUsedLongestAgoAndBeladyWhatIsUsedLast) {
  // Four values in turn, the last one twice: after 0 1 2, value 0 is the oldest and the next one.
  StepTape tape;
  for (ValueIndex value = 0; value < 4; ++value)
    tape.values.push_back({.pages = 1, .becomes = value});
  for (const ValueIndex value : {0U, 1U, 2U, 3U, 0U, 1U, 2U, 3U}) {
    tape.ops.push_back({.signature = tape.ops.size() + 1,
                        .time = std::chrono::milliseconds(10),
                        .first_use = static_cast<std::uint32_t>(tape.uses.size()),
                        .use_count = 1});
    tape.uses.push_back({value, false});
  }
  const SwapLimits limits = limits_for(3);
  const auto demand = strategy_named("demand").plan(tape, limits).swaps.estimate;
  const auto belady = strategy_named("belady").plan(tape, limits).swaps.estimate;
  EXPECT_GT(demand.read_pages, belady.read_pages);
  EXPECT_LE(belady.read_pages, 3U);
}

TEST(Capuchin, SwapsWhatIsHiddenAndRecomputesTheRest) {
  const StepTape tape =
      layer_chain(std::vector<ChainLayer>(12, {.output = 4, .inside = 2, .forward = 2000}));
  SwapLimits limits = limits_for(live_peak(tape) / 2);
  limits.rates.read = limits.rates.write = TransferRate(1e11);
  const StepPlan fast = strategy_named("capuchin").plan(tape, limits);
  EXPECT_TRUE(fast.replays.empty());
  EXPECT_GT(fast.swaps.estimate.read_pages, 0U);
  limits.rates.read = limits.rates.write = TransferRate(1e8);
  const StepPlan slow = strategy_named("capuchin").plan(tape, limits);
  EXPECT_FALSE(slow.replays.empty());
  EXPECT_LT(slow.swaps.estimate.read_pages, fast.swaps.estimate.read_pages);
}

TEST(Capuchin, RecomputesWhereTransfersHideOneByOneButNotTogether) {
  const StepTape tape = layer_chain(
      std::vector<ChainLayer>(12, {.output = 4, .inside = 2, .forward = 2000, .backward = 4000}));
  SwapLimits limits = limits_for(live_peak(tape) / 3);
  limits.rates.duplex_share = 1.0;
  // 8 MiB take 8 ms of a step of 72 ms, and all that has to leave 100 ms.
  limits.rates.read = limits.rates.write = TransferRate(1e9);
  const StepPlan plan = strategy_named("capuchin").plan(tape, limits);
  EXPECT_FALSE(plan.replays.empty());
  EXPECT_GT(plan.swaps.estimate.read_pages, 0U);
  const StepPlan swaps = strategy_named("offload-only").plan(tape, limits);
  EXPECT_LT(plan.swaps.estimate.written_pages, swaps.swaps.estimate.written_pages);
}

TEST(Karma, KeepsTheLastBlocksAndRecomputesAmongSwappedOnes) {
  const StepTape tape =
      layer_chain(std::vector<ChainLayer>(16, {.output = 2, .inside = 6, .forward = 300}));
  SwapLimits limits = limits_for(live_peak(tape) / 2);
  limits.rates.read = limits.rates.write = TransferRate(1.5e10);
  limits.rates.duplex_share = 1.0;
  const StepPlan plan = strategy_named("karma").plan(tape, limits);
  EXPECT_FALSE(plan.replays.empty());
  EXPECT_FALSE(plan.swaps.swaps.empty());
  for (const PlannedSwap& swap : plan.swaps.swaps)
    EXPECT_LT(plan.steps.op_of[swap.last_touch], 12U) << "the last layers stay";
  for (const char* name : {"offload-only", "swap-all"})
    EXPECT_LE(plan.swaps.estimate.step_seconds,
              strategy_named(name).plan(tape, limits).swaps.estimate.step_seconds)
        << name;
}

TEST(Exhaustive, RefusesLongStepsWithTheNumberOfChoices) {
  GoldenPart golden;
  golden.add(error_text<PlanError>([&] { exhaustive_plan(even_chain(12), limits_for(30)); }));
}

TEST(Exhaustive, IsNeverBeaten) {
  std::map<std::string_view, double> sum_of_ratios;
  std::map<std::string_view, std::uint32_t> counts;
  std::uint32_t cases = 0;
  for (std::uint64_t seed = 0; seed < tries(40U, 5U); ++seed) {
    const StepTape tape = tiny_step(seed);
    for (std::uint32_t budget = std::max(1U, smallest_budget(tape)); budget < live_peak(tape);
         ++budget) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " budget " << budget);
      const SwapLimits limits = tiny_limits(budget, seed);
      StepPlan least;
      try {
        least = exhaustive_plan(tape, limits);
      } catch (const PlanError&) {
        continue;  // Too many choices.
      }
      ++cases;
      for (const Strategy& strategy : strategies()) {
        const auto plan = plan_or_refusal(strategy, tape, limits);
        if (!plan) continue;
        const double ratio = plan->swaps.estimate.step_seconds / least.swaps.estimate.step_seconds;
        EXPECT_GE(ratio, 1.0 - 1e-6) << strategy.name;
        sum_of_ratios[strategy.name] += ratio;
        ++counts[strategy.name];
      }
    }
  }
  EXPECT_GT(cases, tries(60U, 5U));
  for (const auto& [name, sum] : sum_of_ratios)
    std::cout << name << ": " << counts[name] << " steps, " << sum / counts[name]
              << " times the exhaustive one\n";
}

}  // namespace
}  // namespace spillway::planner
