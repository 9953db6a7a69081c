#include "spillway/runtime/learning/step_learner.h"

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spillway/base/log.h"
#include "support/sanitized.h"
#include "support/synthetic_trainers.h"

namespace spillway::runtime {
namespace {

using testing::PagingSimulation;
using testing::StepCounts;
using testing::SyntheticTrainer;

using Factory = std::function<std::unique_ptr<SyntheticTrainer>()>;

struct Needs {
  std::uint32_t live_peak = 0;
  std::uint32_t smallest_budget = 0;
};

Needs needs_of(const Factory& make) {
  PagingSimulation run({});
  const auto trainer = make();
  for (std::uint32_t step = 0; step < 5; ++step) trainer->run_step(run, step);
  return {run.live_peak(), run.learner().report().smallest_budget_pages};
}

struct Outcome {
  std::vector<StepCounts> steps;
  LearnerReport report;
  std::uint32_t resident_peak = 0;
};

Outcome train(const Factory& make, const PagingSimulation::Options& options,
              std::uint32_t step_count) {
  PagingSimulation run(options);
  const auto trainer = make();
  Outcome outcome;
  for (std::uint32_t step = 0; step < step_count; ++step) {
    trainer->run_step(run, step);
    outcome.steps.push_back(run.take_counts());
  }
  outcome.report = run.learner().report();
  outcome.resident_peak = run.resident_peak();
  return outcome;
}

/// The same training with the learner's advice and without it, by demand paging alone.
struct Comparison {
  Outcome planned;
  Outcome demand;
};

Comparison train_both_ways(const Factory& make, PagingSimulation::Options options,
                           std::uint32_t step_count) {
  Comparison both;
  both.planned = train(make, options, step_count);
  options.follows_advice = false;
  both.demand = train(make, options, step_count);
  return both;
}

StepCounts sum(const std::vector<StepCounts>& steps, std::size_t first) {
  StepCounts total;
  for (std::size_t i = first; i < steps.size(); ++i) {
    total.missed_ranges += steps[i].missed_ranges;
    total.written_pages += steps[i].written_pages;
    total.read_pages += steps[i].read_pages;
    total.forced_pages += steps[i].forced_pages;
    total.stall_seconds += steps[i].stall_seconds;
    total.seconds += steps[i].seconds;
  }
  return total;
}

struct TrainerCase {
  std::string name;
  Factory make;
  std::uint32_t settled = 4;     ///< Steps after which nothing may be missed any more.
  double most_transfers = 1.35;  ///< Against peak minus budget, each way and step.
};

std::ostream& operator<<(std::ostream& out, const TrainerCase& trainer) {
  return out << trainer.name;
}

std::vector<TrainerCase> trainer_cases() {
  testing::TransformerSizes accumulating;
  accumulating.micro_batches = 3;
  testing::MlpSizes keeping;
  keeping.keeps_gradients = true;
  return {{"unet", [] { return testing::make_unet({}); }},
          {"transformer", [] { return testing::make_transformer({}); }},
          {"accumulating", [=] { return testing::make_transformer(accumulating); }, 4, 3.3},
          {"mlp", [] { return testing::make_mlp({}); }, 4, 1.6},
          {"mlp_keeping_gradients", [=] { return testing::make_mlp(keeping); }, 4, 2.2}};
}

class EqualSteps : public ::testing::TestWithParam<std::tuple<TrainerCase, int>> {};

TEST_P(EqualSteps, AreFetchedAheadOnceTheyAreKnown) {
  const auto& [trainer, percent] = GetParam();
  const Needs needs = needs_of(trainer.make);
  const std::uint32_t peak = needs.live_peak;
  PagingSimulation::Options options;
  options.budget_pages =
      std::max(peak * static_cast<std::uint32_t>(percent) / 100, needs.smallest_budget);
  const std::uint32_t steps = tries(12U, 6U);
  const auto [planned, demand] = train_both_ways(trainer.make, options, steps);

  EXPECT_LE(planned.resident_peak, options.budget_pages);
  const StepCounts settled = sum(planned.steps, trainer.settled);
  const StepCounts baseline = sum(demand.steps, trainer.settled);
  EXPECT_EQ(settled.missed_ranges, 0U);
  EXPECT_GT(baseline.missed_ranges, 0U);
  // Demand paging fills the last page; a plan leaves some room to fetch ahead, and moves a bit more
  // where that saves waiting.
  const std::uint64_t least_moved = baseline.written_pages + baseline.read_pages;
  const std::uint64_t spare = options.budget_pages / 16 * (steps - trainer.settled);
  EXPECT_LE(settled.written_pages + settled.read_pages, least_moved * 11 / 10 + spare);
  EXPECT_LE(settled.seconds, baseline.seconds * 1.001);
  const double least = static_cast<double>(peak - options.budget_pages) * (steps - trainer.settled);
  EXPECT_LE(static_cast<double>(settled.read_pages), least * trainer.most_transfers);
  EXPECT_LE(static_cast<double>(settled.written_pages), least * trainer.most_transfers);
  EXPECT_TRUE(planned.report.follows_plan);
  EXPECT_GT(planned.report.planned_seconds, 0.0);
  EXPECT_LE(planned.report.bound_seconds, planned.report.planned_seconds * (1.0 + 1e-9));
}

std::vector<int> percentages() {
  std::vector<int> all = {75, 50};
  if (!kIsSanitized) all.push_back(35);  // Takes a minute there.
  return all;
}

INSTANTIATE_TEST_SUITE_P(Trainers, EqualSteps,
                         ::testing::Combine(::testing::ValuesIn(trainer_cases()),
                                            ::testing::ValuesIn(percentages())),
                         [](const auto& trainer) {
                           return std::get<0>(trainer.param).name + "_" +
                                  std::to_string(std::get<1>(trainer.param));
                         });

/// Steps that are not all equal: better than demand paging from early on, within the budget always.
class UnequalSteps : public ::testing::TestWithParam<TrainerCase> {};

TEST_P(UnequalSteps, AreServedBetterThanOnDemand) {
  const TrainerCase& trainer = GetParam();
  PagingSimulation::Options options;
  options.budget_pages = needs_of(trainer.make).live_peak / 2;
  const auto [planned, demand] = train_both_ways(trainer.make, options, 24);
  EXPECT_LE(planned.resident_peak, options.budget_pages);
  const StepCounts late = sum(planned.steps, trainer.settled);
  const StepCounts baseline = sum(demand.steps, trainer.settled);
  EXPECT_LE(late.missed_ranges * 4, baseline.missed_ranges);
  EXPECT_LT(late.stall_seconds, baseline.stall_seconds);
  EXPECT_LT(late.seconds, baseline.seconds);
  EXPECT_LE(planned.report.shapes, 8U);
}

INSTANTIATE_TEST_SUITE_P(
    Trainers, UnequalSteps,
    ::testing::Values(TrainerCase{"evaluating", [] { return testing::make_evaluating(3, 3); }, 6},
                      TrainerCase{"uneven", [] { return testing::make_uneven(4); }, 6},
                      TrainerCase{"gan", [] { return testing::make_gan(); }, 5}),
    [](const auto& trainer) { return trainer.param.name; });

TEST(StepLearner, NeverMakesVaryingStepsMuchWorse) {
  const Factory make = [] { return testing::make_sampler(); };
  PagingSimulation::Options options;
  options.budget_pages = needs_of(make).live_peak / 2;
  const auto [planned, demand] = train_both_ways(make, options, 40);
  EXPECT_LE(sum(planned.steps, 0).seconds, sum(demand.steps, 0).seconds * 1.05);
  EXPECT_LE(planned.report.shapes, 8U);
}

TEST(StepLearner, FindsStepsThatNobodyAnnounces) {
  for (const TrainerCase& trainer : trainer_cases()) {
    SCOPED_TRACE(trainer.name);
    PagingSimulation::Options options;
    options.budget_pages = needs_of(trainer.make).live_peak / 2;
    options.announces_steps = false;
    const auto [planned, demand] = train_both_ways(trainer.make, options, 40);
    EXPECT_EQ(sum(planned.steps, 36).missed_ranges, 0U);
    EXPECT_LT(sum(planned.steps, 36).stall_seconds, sum(demand.steps, 36).stall_seconds);
  }
}

// --- The interface, event by event ------------------------------------------------------------

constexpr std::uint32_t kPages = 4;
const Bytes kPageSize = planner::SwapLimits().page_size;

/// Drives the learner by hand: chains of operators on numbered ranges.
class Driver {
 public:
  explicit Driver(std::uint32_t budget_pages, const planner::TransferRates& rates = {})
      : learner({.budget_pages = budget_pages, .rates = rates}) {}
  explicit Driver(const StepLearner::Options& options) : learner(options) {}

  void op(std::uint64_t signature, std::vector<std::uint32_t> inputs,
          std::vector<std::uint32_t> outputs = {}) {
    std::vector<PieceUse> uses;
    for (const std::uint32_t input : inputs) uses.push_back({PieceId(input), kPages, false});
    begin.clear();
    learner.begin_op(signature, uses, now, begin, false, {.phase = phase});
    for (const std::uint32_t output : outputs) learner.allocated(PieceId(output), kPages);
    now += each;
    end.clear();
    learner.end_op(end);
    if (on_end) on_end();
  }

  /// One that works on small storages alone: touches some shared pages and begins others.
  void small_op(std::uint64_t signature, std::vector<std::uint32_t> touched,
                std::vector<std::uint32_t> begun = {}) {
    std::vector<PieceUse> shared;
    for (const std::uint32_t page : touched) shared.push_back({PieceId(page), 1, false});
    begin.clear();
    learner.begin_op(signature, {}, now, begin, false, {}, shared);
    for (const std::uint32_t page : begun) learner.allocated_shared(PieceId(page));
    now += each;
    end.clear();
    learner.end_op(end);
  }

  OpClock next_use_of(std::uint32_t range) const {
    for (const Advice* advice : {&end, &begin}) {
      for (const auto& next : advice->next_uses) {
        if (next.piece == PieceId(range)) return next.at;
      }
    }
    return kUnknownUse;
  }

  StepLearner learner;
  Duration each = std::chrono::milliseconds(10);
  OpPhase phase = OpPhase::kUnknown;
  Advice begin;
  Advice end;
  std::function<void()> on_end;
  TimePoint now{};
};

/// Ten operators: range 0 at the begin and the end, temporaries 1 to 8 in between.
void run_chain(Driver& driver, std::uint64_t flavour = 0) {
  driver.learner.step_boundary();
  driver.op(100 + flavour, {0}, {1});
  for (std::uint32_t i = 1; i < 8; ++i) {
    driver.op(100 + i + flavour, {i}, {i + 1});
    driver.learner.freed(PieceId(i));
  }
  driver.op(108 + flavour, {8});
  driver.learner.freed(PieceId(8));
  driver.op(109 + flavour, {0});
}

TEST(StepLearner, PlansAgainWhenTheDiskGetsSlower) {
  planner::TransferRates rates;
  rates.write = rates.read = TransferRate(1e9);
  Driver driver(
      StepLearner::Options{.budget_pages = 12, .rates = rates, .rates_now = [&] { return rates; }});
  // Two storages that live from step to step beside the chain, which needs two at once.
  for (const std::uint32_t id : {0U, 20U, 21U}) driver.learner.allocated(PieceId(id), kPages);
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      run_chain(driver);
      driver.op(120, {20});
      driver.op(121, {21});
    }
  };
  steps(80);
  const LearnerReport fast = driver.learner.report();
  steps(80);
  EXPECT_EQ(driver.learner.report().bound_seconds, fast.bound_seconds) << "nothing has changed";
  rates.write = rates.read = TransferRate(1e8);
  steps(80);
  const LearnerReport slow = driver.learner.report();
  EXPECT_GT(slow.bound_seconds, 1.1 * fast.bound_seconds) << "what the latest order has shown";
}

TEST(StepLearner, ForecastsTheNextStepsByTheTimesOfTheLatest) {
  Driver driver(1000);
  driver.learner.allocated(PieceId(0), kPages);
  for (int i = 0; i < 80; ++i) run_chain(driver);
  const LearnerReport before = driver.learner.report();
  EXPECT_NEAR(before.planned_seconds, 0.1, 1e-9);
  driver.each = std::chrono::microseconds(10400);  // Too little for another plan.
  for (int i = 0; i < 40; ++i) run_chain(driver);
  const LearnerReport after = driver.learner.report();
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_NEAR(after.followed_seconds, 0.104, 1e-9);
  EXPECT_NEAR(after.planned_seconds, 0.104, 1e-9);
}

// The bound was that of the times when the plan was made: above what the plan was then expected to
// take, once operators had become faster.
TEST(StepLearner, ForecastsNothingBelowTheBoundWhenOperatorsGetFaster) {
  Driver driver(StepLearner::Options{.budget_pages = 12});
  for (const std::uint32_t id : {0U, 20U, 21U}) driver.learner.allocated(PieceId(id), kPages);
  for (int i = 0; i < 160; ++i) {
    if (i == 80) driver.each = std::chrono::microseconds(9600);  // Too little for another plan.
    run_chain(driver);
    driver.op(120, {20});
    driver.op(121, {21});
    const LearnerReport report = driver.learner.report();
    ASSERT_LE(report.bound_seconds, report.planned_seconds) << "step " << i;
    if (i == 79) {
      EXPECT_GE(report.bound_seconds, 0.12 * (1.0 - 1e-9));
    }
  }
  const LearnerReport last = driver.learner.report();
  EXPECT_GE(last.bound_seconds, 0.1152 * (1.0 - 1e-9));
  EXPECT_LT(last.bound_seconds, 0.12);
}

/// A good plan at first, then only bad ones.
planner::StepPlan plan_worse_and_worse(const profile::StepTape& tape,
                                       const planner::SwapLimits& limits,
                                       const planner::StopCheck& should_stop) {
  static int calls = 0;
  return planner::strategy_named(++calls == 1 ? "offload-only" : "demand")
      .plan(tape, limits, should_stop);
}

TEST(StepLearner, KeepsAPlanThatIsBetterThanTheNextOne) {
  const planner::Strategy worsening{"worsening", "", "", plan_worse_and_worse};
  planner::TransferRates rates;
  rates.write = rates.read = TransferRate(1e9);
  Driver driver(StepLearner::Options{
      .budget_pages = 12, .rates = rates, .planning = {.strategy = &worsening}});
  for (const std::uint32_t id : {0U, 20U, 21U}) driver.learner.allocated(PieceId(id), kPages);
  for (int i = 0; i < 80; ++i) {
    run_chain(driver);
    driver.op(120, {20});
    driver.op(121, {21});
  }
  EXPECT_EQ(driver.learner.report().plans, 1U);
}

/// One plan, and then none.
planner::StepPlan plan_once(const profile::StepTape& tape, const planner::SwapLimits& limits,
                            const planner::StopCheck& should_stop) {
  static int calls = 0;
  if (++calls > 1) throw PlanError("no more plans");
  return planner::strategy_named("offload-only").plan(tape, limits, should_stop);
}

TEST(StepLearner, KeepsItsPlanWhenTheNextOneFails) {
  const planner::Strategy failing{"failing", "", "", plan_once};
  Driver driver(StepLearner::Options{.budget_pages = 12, .planning = {.strategy = &failing}});
  for (const std::uint32_t id : {0U, 20U, 21U}) driver.learner.allocated(PieceId(id), kPages);
  for (int i = 0; i < 20; ++i) {
    run_chain(driver);
    driver.op(120, {20});
    driver.op(121, {21});
  }
  EXPECT_TRUE(driver.learner.report().follows_plan);
}

/// Forward fills pages 1 to 8, two operators each; backward empties them in the opposite order. In
/// a step with `late`, each page is begun by the other one of its operators.
void run_shared_pages(Driver& driver, bool late = false,
                      const std::function<void(std::uint32_t)>& in_backward = {}) {
  driver.learner.step_boundary();
  driver.small_op(200, {});
  for (std::uint32_t page = 1; page <= 8; ++page) {
    const std::uint32_t before = page > 1 ? page - 1 : 8;
    const auto first = page > 1 ? std::vector{before} : std::vector<std::uint32_t>{};
    if (late) {
      driver.small_op(200 + page, first);
      driver.small_op(300 + page, first, {page});
    } else {
      driver.small_op(200 + page, first, {page});
      driver.small_op(300 + page, {page});
    }
  }
  for (std::uint32_t page = 8; page > 0; --page) {
    driver.small_op(400 + page, {page});
    if (in_backward) in_backward(page);
    driver.learner.freed(PieceId(page));
  }
}

TEST(StepLearner, ForeseesThatSharedPagesLeaveAndComeBack) {
  Driver driver(4);
  for (int i = 0; i < 20; ++i) run_shared_pages(driver);
  EXPECT_TRUE(driver.learner.report().follows_plan);
  EXPECT_LE(driver.learner.report().planned_peak, Bytes(4 * (std::uint64_t{2} << 20)));
  std::vector<std::uint32_t> fetched;
  run_shared_pages(driver, false, [&](std::uint32_t page) {
    for (const auto& fetch : driver.begin.fetches) fetched.push_back(fetch.piece.value());
    EXPECT_EQ(driver.next_use_of(page), kNeverUsed);
  });
  EXPECT_THAT(fetched, ::testing::IsSupersetOf({1U, 2U, 3U}));
  EXPECT_EQ(driver.learner.report().deviations, 0U);
}

/// Which storages share a page may differ: then it is known by its age.
TEST(StepLearner, FollowsItsPlanWhereSharedPagesBeginElsewhere) {
  Driver driver(4);
  for (int i = 0; i < 20; ++i) run_shared_pages(driver);
  std::vector<std::uint32_t> fetched;
  run_shared_pages(driver, true, [&](std::uint32_t) {
    for (const auto& fetch : driver.begin.fetches) fetched.push_back(fetch.piece.value());
  });
  EXPECT_THAT(fetched, ::testing::IsSupersetOf({1U, 2U, 3U}));
  EXPECT_EQ(driver.learner.report().deviations, 0U);
}

/// A deep net: as many equal layers as asked for, and operators that only begin and end a step
/// have.
void run_equal_layers(Driver& driver, std::uint32_t layers) {
  driver.op(1, {0});
  for (std::uint32_t i = 0; i < layers; ++i)
    for (std::uint64_t signature = 2; signature < 5; ++signature) driver.op(signature, {0});
  driver.op(5, {0});
}

// ResNet-1001: ten thousand operators per step, most of them in loops of nine. What repeated was
// taken for the step, before the first boundary and again in each step after it.
TEST(StepLearner, WaitsForTheBoundaryOfStepsWithThousandsOfEqualLayers) {
  Driver driver(1000);
  driver.learner.allocated(PieceId(0), kPages);
  run_equal_layers(driver, 3000);
  driver.learner.step_boundary();
  run_equal_layers(driver, 3000);
  const std::uint64_t before = driver.learner.report().steps;
  for (std::uint64_t more = 1; more < 5; ++more) {
    driver.learner.step_boundary();
    run_equal_layers(driver, 3000);
    EXPECT_EQ(driver.learner.report().steps, before + more);
  }
}

// They were taken for steps, and a profile of some steps was one of a layer.
TEST(StepLearner, TakesNoLayersOfOnePassForSteps) {
  Driver driver(1000);
  driver.learner.allocated(PieceId(0), kPages);
  driver.phase = OpPhase::kForward;
  run_equal_layers(driver, 3000);
  EXPECT_EQ(driver.learner.report().steps, 0U);
  driver.phase = OpPhase::kBackward;
  run_equal_layers(driver, 3000);
  EXPECT_EQ(driver.learner.report().steps, 0U);
  driver.phase = OpPhase::kOther;
  run_equal_layers(driver, 3000);
  EXPECT_GT(driver.learner.report().steps, 0U) << "a loop that trains nothing";
}

TEST(StepLearner, PredictsNothingDuringTheFirstStep) {
  Driver driver(1000);
  driver.learner.allocated(PieceId(0), kPages);
  driver.op(1, {0}, {1});
  EXPECT_EQ(driver.next_use_of(0), kUnknownUse);
  EXPECT_EQ(driver.next_use_of(1), kUnknownUse);
  EXPECT_TRUE(driver.begin.fetches.empty());
  EXPECT_TRUE(driver.end.write_outs.empty());
  EXPECT_FALSE(driver.learner.report().follows_plan);
}

TEST(StepLearner, TellsNextUsesAsMomentsOfTheOperatorClock) {
  Driver driver(1000);
  driver.learner.allocated(PieceId(0), kPages);
  run_chain(driver);
  run_chain(driver);
  driver.learner.step_boundary();
  driver.op(100, {0}, {1});
  EXPECT_EQ(driver.learner.clock(), 21U);
  EXPECT_EQ(driver.next_use_of(0), 30U) << "the last operator of this step";
  EXPECT_EQ(driver.next_use_of(1), 22U) << "the next operator";
  driver.op(101, {1}, {2});
  EXPECT_EQ(driver.next_use_of(1), kNeverUsed);
}

TEST(StepLearner, KeepsFollowingWhenAnOperatorIsMissingOrNew) {
  Driver driver(1000);
  driver.learner.allocated(PieceId(0), kPages);
  run_chain(driver);
  run_chain(driver);
  driver.learner.step_boundary();
  driver.op(100, {0}, {1});
  driver.op(555, {0});  // Put in.
  EXPECT_FALSE(driver.learner.report().follows_plan);
  for (std::uint32_t i = 1; i < 4; ++i) {
    driver.op(100 + i, {i}, {i + 1});
    driver.learner.freed(PieceId(i));
  }
  EXPECT_TRUE(driver.learner.report().follows_plan) << "after three operators that match";
  EXPECT_EQ(driver.learner.report().deviations, 3U);
  EXPECT_EQ(driver.next_use_of(4), driver.learner.clock() + 1);
}

TEST(StepLearner, RecognisesAnotherKnownStepByItsFirstOperators) {
  Driver driver(1000);
  driver.learner.allocated(PieceId(0), kPages);
  for (int i = 0; i < 2; ++i) run_chain(driver);
  run_chain(driver, 1000);
  for (int i = 0; i < 2; ++i) run_chain(driver);
  const std::uint64_t deviations = driver.learner.report().deviations;
  driver.learner.step_boundary();
  driver.op(1100, {0}, {1});
  EXPECT_TRUE(driver.learner.report().follows_plan);
  EXPECT_LE(driver.learner.report().deviations, deviations + 1);
  EXPECT_EQ(driver.learner.report().shapes, 2U);
}

// The planner makes the choice; here it is only handed on, for each write-out of the plan.
TEST(StepLearner, SaysWhatOfAPlanGoesPastHostMemory) {
  for (const bool has_tiers : {false, true}) {
    StepLearner::Options options{.budget_pages = 2 * kPages};
    if (has_tiers) options.far = planner::FarTier{.rates = {}, .near_pages = 2};
    Driver driver(options);
    driver.learner.allocated(PieceId(0), kPages);
    std::uint32_t written = 0;
    std::uint32_t far = 0;
    driver.on_end = [&] {
      for (const auto& out : driver.end.write_outs) {
        EXPECT_EQ(out.far_pages.has_value(), has_tiers);
        EXPECT_LE(out.far_pages.value_or(0), out.pages);
        written += out.pages;
        far += out.far_pages.value_or(0);
      }
    };
    for (int i = 0; i < 6; ++i) run_chain(driver);
    EXPECT_GT(written, 0U);
    EXPECT_EQ(far > 0, has_tiers);
  }
}

TEST(StepLearner, FollowsAStorageOverTheStepBoundary) {
  // Range 0 is idle between its use at the end of one step and that at the begin of the next.
  Driver driver(2 * kPages);
  driver.learner.allocated(PieceId(0), kPages);
  for (int i = 0; i < 4; ++i) run_chain(driver);
  driver.learner.step_boundary();
  std::vector<PieceId> written;
  std::vector<PieceId> fetched;
  const auto note = [&] {
    for (const auto& out : driver.end.write_outs) written.push_back(out.piece);
    for (const auto& fetch : driver.begin.fetches) fetched.push_back(fetch.piece);
  };
  driver.op(100, {0}, {1});
  note();
  for (std::uint32_t i = 1; i < 8; ++i) {
    driver.op(100 + i, {i}, {i + 1});
    note();
    driver.learner.freed(PieceId(i));
  }
  driver.op(108, {8});
  note();
  driver.learner.freed(PieceId(8));
  driver.op(109, {0});
  note();
  EXPECT_EQ(driver.next_use_of(0), driver.learner.clock() + 1);
  EXPECT_THAT(written, ::testing::ElementsAre(PieceId(0)));
  EXPECT_THAT(fetched, ::testing::ElementsAre(PieceId(0)));
}

TEST(StepLearner, GivesNoAdviceAboutStoragesThatHaveDied) {
  Driver driver(2 * kPages);
  driver.learner.allocated(PieceId(0), kPages);
  for (int i = 0; i < 4; ++i) run_chain(driver);
  driver.learner.freed(PieceId(0));
  driver.learner.allocated(PieceId(0), kPages);  // Another storage with the same number.
  driver.learner.step_boundary();
  driver.op(100, {}, {1});
  for (std::uint32_t i = 1; i < 8; ++i) {
    driver.op(100 + i, {i}, {i + 1});
    EXPECT_TRUE(driver.begin.fetches.empty());
    driver.learner.freed(PieceId(i));
  }
}

TEST(StepLearner, SurvivesAnOperatorThatNeverEnds) {
  Driver driver(1000);
  Advice advice;
  driver.learner.begin_op(1, {}, driver.now, advice);
  driver.learner.begin_op(2, {}, driver.now, advice);
  driver.learner.end_op(advice);
  driver.learner.end_op(advice);
  driver.learner.step_boundary();
  driver.op(3, {});
  EXPECT_EQ(driver.learner.report().steps, 1U);
}

TEST(StepLearner, PlansTransfersOnlyWhereTheBudgetIsTooSmall) {
  for (const std::uint32_t budget_pages : {1000U, 2 * kPages}) {
    Driver driver(budget_pages);
    driver.learner.allocated(PieceId(0), kPages);
    for (int i = 0; i < 4; ++i) run_chain(driver);
    const std::uint64_t peak = driver.learner.report().planned_peak / kPageSize;
    EXPECT_LE(peak, budget_pages);
    EXPECT_EQ(peak <= 2 * kPages, budget_pages < 1000) << budget_pages;
  }
}

TEST(StepLearner, PlansForTheRoomThatSmallBlocksLeave) {
  Driver driver(1000);
  driver.learner.allocated(PieceId(0), kPages);
  for (int i = 0; i < 4; ++i) run_chain(driver);
  EXPECT_GT(driver.learner.report().planned_peak, 2 * kPages * kPageSize);
  driver.learner.note_room(2 * kPages);
  for (int i = 0; i < 70; ++i) run_chain(driver);  // Later plans are made again ever more seldom.
  EXPECT_LE(driver.learner.report().planned_peak, 2 * kPages * kPageSize);
}

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(StepLearner, GoesOnWithoutAPlanWhereNoneCanBeMadeAndSaysSoOnce) {
  Driver driver(2 * kPages, {.write = TransferRate(1e9), .read = TransferRate(1e40)});
  ::testing::internal::CaptureStderr();
  driver.learner.allocated(PieceId(0), kPages);
  for (int i = 0; i < 10; ++i) run_chain(driver);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of("no plan for a step", log), 1U) << log;
  EXPECT_EQ(count_of("read_bytes_per_second is 1e+40 bytes/s, not from", log), 1U) << log;
  EXPECT_EQ(driver.learner.report().plans, 0U);
  EXPECT_EQ(driver.learner.report().steps, 9U);
}

TEST(StepLearner, TellsItsPlansAndDeviationsWhenAsked) {
  configure_log(LogLevel::kDebug);
  ::testing::internal::CaptureStderr();
  Driver driver(2 * kPages);
  driver.learner.allocated(PieceId(0), kPages);
  for (int i = 0; i < 4; ++i) run_chain(driver);
  driver.learner.step_boundary();
  driver.op(100, {0});
  driver.op(999, {0});
  const std::string log = ::testing::internal::GetCapturedStderr();
  configure_log(LogLevel::kWarning);
  EXPECT_EQ(count_of("info: new plan for 10 operators in 1 step: ", log), 1U) << log;
  EXPECT_EQ(count_of(" plan for 10 operators", log), driver.learner.report().plans) << log;
  EXPECT_GE(count_of("smallest budget 16.0 MiB", log), 1U) << log;
  EXPECT_EQ(count_of("debug: step 5 left its plan", log), 1U) << log;
}

TEST(Advice, KeepsItsMemoryWhenCleared) {
  Advice advice;
  advice.next_uses.resize(100);
  advice.reserve_pages = 7;
  advice.clear();
  EXPECT_TRUE(advice.next_uses.empty());
  EXPECT_GE(advice.next_uses.capacity(), 100U);
  EXPECT_FALSE(advice.reserve_pages);
}

}  // namespace
}  // namespace spillway::runtime
