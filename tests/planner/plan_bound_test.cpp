#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "clp.h"
#include "least_replay_time.h"
#include "least_time.h"
#include "random_tapes.h"
#include "spillway/planner/step_bound.h"
#include "spillway/planner/step_plan.h"
#include "support/sanitized.h"
#include "tick_limits.h"

namespace spillway::planner {
namespace {

using profile::kCarriedIn;
using profile::kSurvives;
using profile::TapeUse;

/// Rates at which nothing is worth moving.
SwapLimits hardly_any_link(std::uint32_t budget_pages) {
  SwapLimits limits = tick_limits(budget_pages, true);
  limits.page_size = Bytes(std::uint64_t{1} << 28);
  limits.rates.read = limits.rates.write = TransferRate(2e5);
  return limits;
}

/// A step that is written down operator by operator.
class StepWriter {
 public:
  OpIndex op(int milliseconds, const std::vector<TapeUse>& uses, bool is_replayable = true) {
    TapeOp added{.signature = tape.ops.size() + 1, .time = std::chrono::milliseconds(milliseconds)};
    added.first_use = static_cast<std::uint32_t>(tape.uses.size());
    added.use_count = static_cast<std::uint32_t>(uses.size());
    added.is_replayable = is_replayable;
    tape.uses.insert(tape.uses.end(), uses.begin(), uses.end());
    tape.ops.push_back(added);
    return static_cast<OpIndex>(tape.ops.size() - 1);
  }
  /// Made by the latest operator.
  ValueIndex value(std::uint32_t pages) {
    tape.ops.back().inside_peak_pages += pages;
    tape.values.push_back(
        {.pages = pages, .birth = static_cast<OpIndex>(tape.ops.size() - 1), .death = kSurvives});
    return static_cast<ValueIndex>(tape.values.size() - 1);
  }
  void free(ValueIndex value) {
    tape.values[value].death = static_cast<OpIndex>(tape.ops.size() - 1);
  }

  StepTape tape;

 private:
  using TapeOp = profile::TapeOp;
};

/// Forward makes a value per layer out of the one before; backward uses them in reverse order.
StepTape training_chain(std::size_t layers, std::uint32_t pages, int forward, int backward) {
  StepWriter writer;
  std::vector<ValueIndex> values;
  for (std::size_t i = 0; i < layers; ++i) {
    if (i == 0)
      writer.op(forward, {});
    else
      writer.op(forward, {{values.back(), false}});
    values.push_back(writer.value(pages));
  }
  for (std::size_t i = layers; i-- > 0;) {
    if (i == 0)
      writer.op(backward, {{values[i], false}}, false);
    else
      writer.op(backward, {{values[i], false}, {values[i - 1], false}}, false);
    writer.free(values[i]);
  }
  return writer.tape;
}

/// A small training step with all that recomputation has to look at: writes in place, values that
/// die before they are needed again, operators with two results or that may not run again.
StepTape tiny_training(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint32_t bound) {
    return static_cast<std::uint32_t>(random() % bound);
  };
  StepWriter writer;
  std::vector<ValueIndex> made;
  std::vector<ValueIndex> saved;
  if (below(3) == 0) {
    writer.tape.values.push_back({.pages = 1 + below(2), .becomes = 0});
    made.push_back(0);
  }
  const std::uint32_t forward = 2 + below(3);
  for (std::uint32_t i = 0; i < forward; ++i) {
    std::vector<TapeUse> uses;
    if (!made.empty()) uses.push_back({made.back(), made.size() > 1 && below(4) == 0});
    if (made.size() > 1 && below(3) == 0) uses.push_back({made[made.size() - 2], false});
    writer.op(static_cast<int>(below(3)), uses, below(8) != 0);
    const std::uint32_t results = below(8) == 0 ? 2 : 1;
    for (std::uint32_t r = 0; r < results; ++r) made.push_back(writer.value(1 + below(2)));
    if (below(5) == 0) {
      const ValueIndex in_place = made.back();
      writer.op(static_cast<int>(below(3)), {{in_place, true}}, below(8) != 0);
    }
  }
  for (const ValueIndex value : made)
    if (writer.tape.values[value].birth != kCarriedIn && below(4) != 0) saved.push_back(value);
  while (!saved.empty()) {
    std::vector<TapeUse> uses{{saved.back(), false}};
    if (saved.size() > 1 && below(3) == 0) uses.push_back({saved[saved.size() - 2], false});
    writer.op(static_cast<int>(below(3)), uses, below(3) == 0);
    writer.free(saved.back());
    saved.pop_back();
  }
  if (writer.tape.values.front().birth == kCarriedIn) writer.op(1, {{0, below(2) == 0}}, false);
  // What backward does not use dies behind its last use; some of it is forgotten until the end.
  std::vector<OpIndex> last(writer.tape.values.size(), 0);
  for (OpIndex op = 0; op < writer.tape.ops.size(); ++op) {
    for (std::uint32_t i = 0; i < writer.tape.ops[op].use_count; ++i)
      last[writer.tape.uses[writer.tape.ops[op].first_use + i].value] = op;
  }
  for (ValueIndex i = 0; i < last.size(); ++i) {
    auto& value = writer.tape.values[i];
    if (value.birth == kCarriedIn || value.death != kSurvives) continue;
    value.death = below(6) == 0 ? static_cast<OpIndex>(writer.tape.ops.size() - 1)
                                : std::max(last[i], value.birth);
  }
  // Freed values may still be used later in backward.
  for (ValueIndex i = 0; i < last.size(); ++i) {
    auto& value = writer.tape.values[i];
    if (value.birth != kCarriedIn) value.death = std::max(value.death, last[i]);
  }
  profile::check(writer.tape);
  return writer.tape;
}

/// Forward and backward with residual inputs and writes in place, of several dozen operators.
StepTape middle_training(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint32_t bound) {
    return static_cast<std::uint32_t>(random() % bound);
  };
  StepWriter writer;
  writer.tape.values.push_back({.pages = 8, .becomes = 0});
  std::vector<ValueIndex> made{0};
  for (std::uint32_t i = 0; i < 20; ++i) {
    std::vector<TapeUse> uses{{made.back(), false}};
    if (made.size() > 3 && below(3) == 0) uses.push_back({made[made.size() - 3], false});
    writer.op(1 + static_cast<int>(below(9)), uses, below(10) != 0);
    made.push_back(writer.value(4 + below(12)));
    if (below(4) == 0) writer.op(1, {{made.back(), true}});
  }
  while (made.size() > 1) {
    std::vector<TapeUse> uses{{made.back(), false}};
    if (made.size() > 2) uses.push_back({made[made.size() - 2], false});
    writer.op(2 + static_cast<int>(below(15)), uses, false);
    writer.free(made.back());
    made.pop_back();
  }
  writer.op(1, {{0, true}}, false);
  profile::check(writer.tape);
  return writer.tape;
}

StepTape middle_random(std::uint64_t seed) {
  StepTape tape = random_tape(seed, {.ops = 40, .persistent = 4});
  for (auto& op : tape.ops) op.is_replayable = op.signature / 3 % 4 != 0;
  return tape;
}

/// Some values that are recomputed for their next use.
std::vector<Drop> random_drops(const StepTape& tape, const Recomputation& all,
                               std::mt19937_64& random) {
  std::vector<Drop> drops;
  for (ValueIndex value = 0; value < tape.values.size(); ++value) {
    if (tape.values[value].birth == kCarriedIn || random() % 2 == 0) continue;
    OpIndex after = tape.values[value].birth;
    for (OpIndex next = all.next_use(value, after); next != kNoOp && next < after + 4;
         next = all.next_use(value, after))
      after = next;
    if (all.can_drop(value, after)) drops.push_back({value, after, random() % 2 == 0});
  }
  return drops;
}

StepTape tiny_random(std::uint64_t seed) {
  StepTape tape = random_tape(seed, {.ops = 3 + static_cast<std::uint32_t>(seed % 3),
                                     .persistent = static_cast<std::uint32_t>(1 + seed % 2),
                                     .births_percent = 60,
                                     .max_pages = 2,
                                     .max_uses = 2,
                                     .has_carried = seed % 5 == 0,
                                     .has_long_lives = false});
  for (auto& op : tape.ops) {
    op.time = std::chrono::milliseconds(op.signature % 3);
    op.is_replayable = op.signature / 3 % 4 != 0;
  }
  return tape;
}

constexpr std::uint64_t kTinyTrainings = tries(900, 80);
constexpr std::uint64_t kTinyTapes = tries(200, 20);
constexpr std::uint64_t kMiddleTapes = tries(60, 6);

struct Tally {
  std::uint32_t cases = 0;
  std::uint32_t beyond_compute = 0;
  std::uint32_t saved_by_replays = 0;
  std::uint32_t quick_tight = 0;
  std::uint32_t fluid_tight = 0;
};

void evaluate(const StepTape& tape, std::uint64_t seed, Tally& tally) {
  for (std::uint32_t budget = std::max(1U, smallest_budget(tape)); budget < live_peak(tape);
       ++budget) {
    const bool is_duplex = seed % 2 == 0;
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " budget " << budget);
    const auto ticks = least_ticks_with_replays(tape, budget, is_duplex);
    if (!ticks) continue;
    const SwapLimits limits = tick_limits(budget, is_duplex);
    const double quick = bound_plan(tape, limits).step_seconds * 1e3;
    const double fluid = bound_plan(tape, limits, {.solver = clp()}).step_seconds * 1e3;
    EXPECT_LE(quick, *ticks + 1e-6);
    EXPECT_LE(fluid, *ticks + 1e-6);
    EXPECT_GE(fluid, quick);
    const auto swapping = least_ticks(tape, budget, is_duplex);
    if (swapping) {
      EXPECT_LE(*ticks, *swapping + 1e-6);
      if (*ticks < *swapping - 1e-6) ++tally.saved_by_replays;
    }
    double compute = 0.0;
    for (const auto& op : tape.ops) compute += seconds(op.time) * 1e3;
    ++tally.cases;
    if (*ticks > compute + 1e-6) ++tally.beyond_compute;
    if (quick > *ticks * 0.95) ++tally.quick_tight;
    if (fluid > *ticks * 0.95) ++tally.fluid_tight;
  }
}

void record(const Tally& tally) {
  ::testing::Test::RecordProperty("cases", static_cast<int>(tally.cases));
  ::testing::Test::RecordProperty("beyond_compute", static_cast<int>(tally.beyond_compute));
  ::testing::Test::RecordProperty("saved_by_replays", static_cast<int>(tally.saved_by_replays));
  ::testing::Test::RecordProperty("quick_tight", static_cast<int>(tally.quick_tight));
  ::testing::Test::RecordProperty("fluid_tight", static_cast<int>(tally.fluid_tight));
}

TEST(BoundPlan, IsNeverAboveTheLeastTimeOfTinyTrainingSteps) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < kTinyTrainings; ++seed)
    evaluate(tiny_training(seed), seed, tally);
  record(tally);
  EXPECT_GT(tally.cases, kTinyTrainings / 2);
  EXPECT_GT(tally.beyond_compute, tally.cases / 3);
  EXPECT_GT(tally.saved_by_replays, tally.cases / 10) << "replays would never be worth it";
  EXPECT_GT(tally.quick_tight, tally.cases / 2) << "a bound that is far too low says nothing";
  if (!clp()) GTEST_SKIP() << kNoClp;
  EXPECT_GT(tally.fluid_tight, tally.cases * 2 / 3);
}

TEST(BoundPlan, IsNeverAboveTheLeastTimeOfAnyTinyStep) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < kTinyTapes; ++seed) evaluate(tiny_random(seed), seed, tally);
  record(tally);
  EXPECT_GT(tally.cases, kTinyTapes / 2);
}

/// Pages that are written in one interval so that they can leave without that in a later one need
/// not leave in the first: a version of the linear program made them, and was above these two.
TEST(BoundPlan, LetsPagesStayThatAreCopiedForLater) {
  Tally tally;
  for (const std::uint64_t seed : {270, 625}) evaluate(tiny_random(seed), seed, tally);
  EXPECT_GE(tally.cases, 2U);
}

TEST(BoundPlan, ChargesForParentsOnceTheyAreGone) {
  if (!clp()) GTEST_SKIP() << kNoClp;
  for (const bool is_gone : {false, true}) {
    StepWriter writer;
    writer.op(3, {});
    const ValueIndex parent = writer.value(1);
    writer.op(1, {{parent, false}});
    const ValueIndex made = writer.value(1);
    if (is_gone) writer.free(parent);
    if (is_gone)
      writer.op(1, {}, false);
    else
      writer.op(1, {{parent, false}}, false);
    writer.tape.ops.back().inside_peak_pages = is_gone ? 4 : 3;  // No room for what was made.
    if (!is_gone) writer.op(0, {{parent, false}}, false);
    if (!is_gone) writer.free(parent);
    writer.op(1, {{made, false}}, false);
    writer.free(made);
    const SwapLimits limits = hardly_any_link(4);
    SCOPED_TRACE(::testing::Message() << is_gone);
    const StepBound bound = bound_plan(writer.tape, limits, {.solver = clp()});
    EXPECT_NEAR(bound.step_seconds, is_gone ? 10e-3 : 7e-3, 1e-6);
    EXPECT_NEAR(bound.recompute_seconds, is_gone ? 4e-3 : 1e-3, 1e-6);
  }
}

double bound_with_parents(const StepTape& tape, const SwapLimits& limits, std::size_t most) {
  return bound_plan(tape, limits, {.solver = clp(), .most_parents = most}).step_seconds;
}

/// A limit on the parents that are charged may raise a bound, because those that are left take more
/// of the time of their operators. It must hold nevertheless.
TEST(BoundPlan, IsNeverAboveTheLeastTimeWhenFewParentsAreCharged) {
  if (!clp()) GTEST_SKIP() << kNoClp;
  std::map<std::size_t, std::uint32_t> higher;
  std::map<std::size_t, std::uint32_t> lower;
  for (std::uint64_t seed = 0; seed < tries(400U, 30U); ++seed) {
    const StepTape tape = tiny_training(seed);
    const std::uint32_t budget = std::max(1U, smallest_budget(tape));
    const auto ticks = least_ticks_with_replays(tape, budget, seed % 2 == 0);
    if (!ticks) continue;
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " budget " << budget);
    const SwapLimits limits = tick_limits(budget, seed % 2 == 0);
    const double all = bound_with_parents(tape, limits, 1000);
    for (const std::size_t most : {0U, 1U, 2U}) {
      const double bound = bound_with_parents(tape, limits, most);
      EXPECT_LE(bound * 1e3, *ticks + 1e-6) << most;
      if (bound > all * 1.000001) ++higher[most];
      if (bound < all * 0.999999) ++lower[most];
    }
  }
  for (const std::size_t most : {0U, 1U, 2U}) {
    RecordProperty("higher_with_" + std::to_string(most), static_cast<int>(higher[most]));
    RecordProperty("lower_with_" + std::to_string(most), static_cast<int>(lower[most]));
  }
  if (tries(400U, 30U) < 400U) return;  // Too few to see both.
  EXPECT_GT(lower[0], 0U);
  EXPECT_GT(higher[0] + higher[1], 0U);
}

/// Two values need the first operator again: the cheap one directly, the dear one behind another
/// parent. Only one has to leave, and the cheap one pays for the first operator alone when the dear
/// one is charged for its nearest parent only.
TEST(BoundPlan, DividesTimeAmongThoseThatAreCharged) {
  if (!clp()) GTEST_SKIP() << kNoClp;
  StepWriter writer;
  writer.op(3, {});
  const ValueIndex first = writer.value(1);
  writer.op(1, {{first, false}});
  const ValueIndex cheap = writer.value(1);
  writer.op(1, {{first, false}});
  writer.free(first);
  const ValueIndex between = writer.value(1);
  writer.op(20, {{between, false}});
  writer.free(between);
  const ValueIndex dear = writer.value(1);
  writer.op(1, {}, false);
  writer.tape.ops.back().inside_peak_pages = 3;
  for (const ValueIndex value : {dear, cheap}) {
    writer.op(1, {{value, false}}, false);
    writer.free(value);
  }
  const SwapLimits limits = hardly_any_link(4);
  EXPECT_NEAR(bound_with_parents(writer.tape, limits, 0), 29e-3, 1e-6);
  EXPECT_NEAR(bound_with_parents(writer.tape, limits, 1), 32e-3, 1e-6);
  EXPECT_NEAR(bound_with_parents(writer.tape, limits, 2), 30.5e-3, 1e-6);
  const StepPlan plan =
      plan_with_replays(writer.tape, Recomputation(writer.tape).replays({{{cheap, 1}}}), limits);
  EXPECT_NEAR(plan.swaps.estimate.step_seconds, 32e-3, 1e-6);
}

/// What leads through all layers ends at once, and every layer makes something that is used at the
/// end: all operators before it would have to run again for it. A list of them for each value took
/// more than 16 GiB of memory here.
TEST(BoundPlan, TakesLongChainsOfParents) {
  constexpr std::uint32_t kLayers = tries(60'000, 6'000);
  StepWriter writer;
  std::vector<ValueIndex> kept;
  ValueIndex last = profile::kNoValue;
  for (std::uint32_t i = 0; i < kLayers; ++i) {
    writer.op(
        1, last == profile::kNoValue ? std::vector<TapeUse>{} : std::vector{TapeUse{last, false}});
    if (last != profile::kNoValue) writer.free(last);
    last = writer.value(1);
    kept.push_back(writer.value(1));
  }
  writer.op(1, {{last, false}});
  writer.free(last);
  for (const ValueIndex value : kept) {
    writer.op(1, {{value, false}}, false);
    writer.free(value);
  }
  const SwapLimits limits = tick_limits(kLayers / 4, true);
  for (const LinearSolver* solver : {static_cast<const LinearSolver*>(nullptr), clp()}) {
    const StepBound bound = bound_plan(writer.tape, limits, {.solver = solver});
    EXPECT_GE(bound.step_seconds, bound.compute_seconds);
    EXPECT_LT(bound.step_seconds, 2 * bound.compute_seconds);
  }
}

/// Finds nothing, and notes what it may take.
class NotingSolver final : public LinearSolver {
 public:
  Solution solve(const LinearProgram& program, std::size_t most_iterations) const override {
    columns = program.columns();
    iterations = most_iterations;
    return {std::vector<double>(program.rows()), std::vector<double>(program.columns())};
  }

  mutable std::size_t columns = 0;
  mutable std::size_t iterations = 0;
};

TEST(BoundPlan, LimitsSizeAndIterationsOfTheProgramEachByItsOwnOption) {
  StepWriter writer;
  std::vector<ValueIndex> values;
  for (int i = 0; i < 40; ++i) {
    writer.op(1, {});
    values.push_back(writer.value(2));
  }
  for (const ValueIndex value : values) {
    writer.op(1, {{value, false}});
    writer.free(value);
  }
  const SwapLimits limits = tick_limits(20, true);
  const NotingSolver solver;
  const StepBound bound = bound_plan(writer.tape, limits, {.solver = &solver});
  EXPECT_GE(bound.step_seconds, bound.compute_seconds);
  const std::size_t columns = solver.columns;
  EXPECT_EQ(solver.iterations, BoundOptions().most_iterations);
  bound_plan(writer.tape, limits, {.solver = &solver, .most_iterations = 123});
  EXPECT_EQ(solver.iterations, 123U);
  EXPECT_EQ(solver.columns, columns);
  bound_plan(writer.tape, limits, {.solver = &solver, .most_columns = columns / 4});
  EXPECT_EQ(solver.iterations, BoundOptions().most_iterations);
  EXPECT_LT(solver.columns, columns);
}

/// The two oracles agree on what both can tell.
TEST(LeastTicks, AreThoseOfSwappingWhereNothingMayRunAgain) {
  std::uint32_t compared = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    StepTape tape = tiny_training(seed);
    for (auto& op : tape.ops) op.is_replayable = false;
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const std::uint32_t budget = smallest_budget(tape);
    const auto ticks = least_ticks_with_replays(tape, budget, seed % 2 == 0);
    const auto swapping = least_ticks(tape, budget, seed % 2 == 0);
    if (!ticks || !swapping) continue;
    EXPECT_DOUBLE_EQ(*ticks, *swapping);
    ++compared;
  }
  EXPECT_GT(compared, 10U);
}

/// Whatever the planner does, and whatever is recomputed at random, takes at least the bound.
TEST(BoundPlan, IsNeverAboveWhatPlansTake) {
  std::uint32_t with_replays = 0;
  for (std::uint64_t seed = 0; seed < kMiddleTapes; ++seed) {
    std::mt19937_64 random(seed);
    const StepTape tape = seed % 2 == 0 ? middle_training(seed) : middle_random(seed);
    SwapLimits limits = tick_limits(0, false);
    limits.rates.write = limits.rates.write * static_cast<double>(1 + random() % 40);
    limits.rates.read = limits.rates.read * static_cast<double>(1 + random() % 40);
    limits.rates.duplex_share = 0.5 + static_cast<double>(random() % 6) / 10;
    limits.refinement_ops = 20000;
    const std::uint32_t least = smallest_budget(tape);
    const std::uint32_t most = live_peak(tape);
    if (least >= most) continue;
    limits.budget_pages = least + static_cast<std::uint32_t>(random() % (most - least));
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " budget " << limits.budget_pages);
    const double bound = bound_plan(tape, limits, {.solver = clp()}).step_seconds * 0.999999;
    EXPECT_LE(bound, plan_step(tape, limits).swaps.estimate.step_seconds);
    const Recomputation all(tape);
    for (int attempt = 0; attempt < 3; ++attempt) {
      const StepPlan plan =
          plan_with_replays(tape, all.replays(random_drops(tape, all, random)), limits);
      if (!plan.swaps.is_feasible || !plan.swaps.estimate.is_complete) continue;
      EXPECT_LE(bound, plan.swaps.estimate.step_seconds);
      if (!plan.replays.empty()) ++with_replays;
    }
  }
  EXPECT_GT(with_replays, kMiddleTapes / 2);
}

TEST(BoundPlan, IsReachedByRecomputingEverySecondValue) {
  constexpr std::uint32_t kPages = 4;
  constexpr std::uint32_t kAgain = 5;
  const StepTape tape = training_chain(16, kPages, 1, 2);
  const SwapLimits limits = hardly_any_link(live_peak(tape) - kAgain * kPages);
  std::vector<Drop> drops;
  for (std::uint32_t i = 0; i < kAgain; ++i) drops.push_back({1 + 2 * i, 2 + 2 * i});
  const StepPlan plan = plan_with_replays(tape, Recomputation(tape).replays(drops), limits);
  ASSERT_NEAR(plan.swaps.estimate.step_seconds, 48e-3 + kAgain * 1e-3, 1e-9);
  const StepBound quick = bound_plan(tape, limits);
  EXPECT_NEAR(quick.step_seconds, plan.swaps.estimate.step_seconds, 1e-6);
  EXPECT_EQ(quick.kind, BoundKind::kWindow);
  EXPECT_NEAR(quick.recompute_seconds, kAgain * 1e-3, 1e-6);
  EXPECT_NEAR(quick.recomputed_share, 1.0, 1e-3);
  const StepBound fluid = bound_plan(tape, limits, {.solver = clp()});
  EXPECT_NEAR(fluid.step_seconds, plan.swaps.estimate.step_seconds, 1e-6);
}

/// A link that moves a value in the time of one forward and half a backward operator: what must
/// leave can leave, and what must come back is partly late.
TEST(BoundPlan, IsNearlyReachedBySwappingAChain) {
  if (!clp()) GTEST_SKIP() << kNoClp;
  StepTape tape = training_chain(40, 16, 4, 8);
  for (auto& op : tape.ops) op.is_replayable = false;
  for (const double pages_per_ms : {1.0, 2.0, 3.0, 4.0, 8.0}) {
    SwapLimits limits = tick_limits(live_peak(tape) / 3, true);
    limits.rates.read = limits.rates.read * pages_per_ms;
    limits.rates.write = limits.rates.write * pages_per_ms;
    SCOPED_TRACE(::testing::Message() << pages_per_ms);
    const double taken = plan_step(tape, limits).swaps.estimate.step_seconds;
    const StepBound fluid = bound_plan(tape, limits, {.solver = clp()});
    EXPECT_LE(fluid.step_seconds, taken);
    EXPECT_GE(fluid.step_seconds, taken * 0.95);
  }
}

/// What cannot be swapped in time is recomputed, exactly as much as that.
TEST(BoundPlan, TellsWhatIsRecomputedBesideSwapping) {
  if (!clp()) GTEST_SKIP() << kNoClp;
  const StepTape tape = training_chain(4, 1, 1, 2);
  for (std::uint32_t budget = smallest_budget(tape); budget < live_peak(tape); ++budget) {
    for (const bool is_duplex : {false, true}) {
      SCOPED_TRACE(::testing::Message() << budget << " duplex " << is_duplex);
      const auto ticks = least_ticks_with_replays(tape, budget, is_duplex);
      ASSERT_TRUE(ticks);
      const StepBound bound = bound_plan(tape, tick_limits(budget, is_duplex), {.solver = clp()});
      EXPECT_LE(bound.step_seconds * 1e3, *ticks + 1e-6);
      EXPECT_GE(bound.step_seconds * 1e3, *ticks * 0.9);
    }
  }
}

// Gradients of imported traces: nobody reads them, so no replay brings them back. They counted as
// dropped for nothing.
TEST(BoundPlan, CountsWhatNoReplayReadsAsThereOrMoved) {
  for (const bool is_read : {false, true}) {
    StepWriter writer;
    writer.op(1, {});
    const ValueIndex gradient = writer.value(10);
    writer.op(1, is_read ? std::vector<TapeUse>{{gradient, false}} : std::vector<TapeUse>{});
    writer.op(1, {});
    writer.tape.ops.back().inside_peak_pages = 8;
    const StepBound bound = bound_plan(writer.tape, tick_limits(12, true));
    EXPECT_EQ(bound.written_pages, is_read ? 0U : 6U) << is_read;
  }
}

TEST(BoundPlan, NeedsNoCostForWhatFits) {
  const StepTape tape = training_chain(6, 2, 1, 2);
  const StepBound bound = bound_plan(tape, tick_limits(live_peak(tape), true), {.solver = clp()});
  EXPECT_EQ(bound.kind, BoundKind::kCompute);
  EXPECT_NEAR(bound.step_seconds, 18e-3, 1e-12);
  EXPECT_EQ(bound.recompute_seconds, 0.0);
}

/// Carried-in values, results of operators that may not run again, and what was made of inputs that
/// have been written over come back by reading only.
TEST(BoundPlan, ReadsWhatCannotBeRecomputed) {
  for (const int reason : {0, 1, 2}) {
    StepWriter writer;
    writer.tape.values.push_back({.pages = 4, .becomes = 0});  // Carried in.
    writer.op(1, {{0, false}}, reason != 1);
    const ValueIndex made = writer.value(4);
    if (reason == 2) writer.op(1, {{0, true}}, false);
    writer.op(1, {}, false);
    writer.tape.ops.back().inside_peak_pages = 8;  // Nothing else fits beside it.
    if (reason == 0)
      writer.op(1, {{0, false}}, false);
    else
      writer.op(1, {{made, false}}, false);
    writer.free(made);
    const SwapLimits limits = tick_limits(8, true);
    SCOPED_TRACE(::testing::Message() << "reason " << reason);
    EXPECT_GE(bound_plan(writer.tape, limits).read_pages, 4U);
    EXPECT_GE(bound_plan(writer.tape, limits, {.solver = clp()}).read_pages, 4U);
  }
}

TEST(ProvenLeast, HoldsForAnyPrices) {
  // Minimize x + 2 y where x + y >= 3, x <= 2, y <= 2: 4 at (2, 1).
  LinearProgram program;
  program.column_cost = {1.0, 2.0};
  program.column_most = {2.0, 2.0};
  program.column_begin = {0, 1, 2};
  program.entry_row = {0, 0};
  program.entry = {1.0, 1.0};
  program.row_least = {3.0};
  program.row_is_equal = {false};
  for (double price = -1.0; price < 5.0; price += 0.25)
    EXPECT_LE(proven_least(program, {price}), 4.0 + 1e-12) << price;
  if (!clp()) GTEST_SKIP() << kNoClp;
  EXPECT_NEAR(proven_least(program, clp()->solve(program, 100).row_prices), 4.0, 1e-9);
}

}  // namespace
}  // namespace spillway::planner
