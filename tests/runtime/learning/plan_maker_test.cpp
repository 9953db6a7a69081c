// How plans come to the trainer, and what becomes of planning that goes wrong.
#include "plan_maker.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <new>
#include <thread>

#include "support/failing_calls.h"
#include "support/manual_clock.h"

namespace spillway::runtime {
namespace {

using planner::StepPlan;
using planner::Strategy;
using planner::SwapLimits;
using profile::StepTape;

constexpr Duration kLong = std::chrono::minutes(1);

StepPlan out_of_memory(const StepTape&, const SwapLimits&, const planner::StopCheck&) {
  throw std::bad_alloc();
}
StepPlan plan_by(const std::string& strategy) {
  StepPlan plan;
  plan.strategy = strategy;
  return plan;
}
StepPlan empty_plan(const StepTape&, const SwapLimits&, const planner::StopCheck&) {
  return plan_by("empty");
}

/// Goes on until it is told to stop.
std::atomic<int> ended{0};
StepPlan endless(const StepTape&, const SwapLimits&, const planner::StopCheck& should_stop) {
  while (!should_stop()) std::this_thread::yield();
  ++ended;
  return plan_by("endless");
}

PlanningOptions options(const Strategy& strategy, PlanningMoment moment) {
  PlanningOptions options;
  options.moment = moment;
  options.strategy = &strategy;
  return options;
}

/// Two values in turn, of which one fits.
PlanMaker::Order crowded_step() {
  StepTape tape;
  for (std::uint32_t i = 0; i < 2; ++i) {
    tape.values.push_back({.pages = 10, .becomes = i});
    tape.uses.push_back({.value = i});
    tape.ops.push_back(
        {.signature = i + 1, .time = std::chrono::milliseconds(1), .first_use = i, .use_count = 1});
  }
  return {tape, planner::SwapLimits{.budget_pages = 12, .rates = {}}};
}

/// Many values that live at once, used twice each: there is something to search for.
PlanMaker::Order long_step() {
  constexpr std::uint32_t kValues = 40;
  StepTape tape;
  for (std::uint32_t i = 0; i < 2 * kValues; ++i) {
    const std::uint32_t value = i < kValues ? i : 2 * kValues - 1 - i;
    if (i < kValues) tape.values.push_back({.pages = 10 + i % 7, .becomes = i});
    tape.uses.push_back({.value = value});
    tape.ops.push_back(
        {.signature = i + 1, .time = std::chrono::milliseconds(1), .first_use = i, .use_count = 1});
  }
  return {tape, planner::SwapLimits{.budget_pages = 200, .rates = {}}};
}

/// Waits for the end of the work.
PlanWork::News last_news(PlanWork& work) {
  PlanWork::News all;
  while (!all.is_final) {
    PlanWork::News news = work.take(kLong);
    if (news.plan) all.plan = std::move(news.plan);
    all.is_final = news.is_final;
    all.failure = news.failure;
  }
  return all;
}

TEST(PlanMaker, TellsThatMemoryDidNotSufficeInsteadOfEndingTheProgram) {
  const Strategy strategy{"greedy", "", "", &out_of_memory};
  for (const auto moment : {PlanningMoment::kInBackground, PlanningMoment::kAtOnce}) {
    PlanMaker maker(options(strategy, moment));
    const PlanWork::News news = last_news(*maker.order(crowded_step()));
    EXPECT_FALSE(news.plan);
    EXPECT_EQ(news.failure, std::bad_alloc().what());
  }
}

TEST(PlanMaker, HandsOutEachPlanOnce) {
  const Strategy strategy{"empty", "", "", &empty_plan};
  PlanMaker maker(options(strategy, PlanningMoment::kAtOnce));
  const auto work = maker.order(crowded_step());
  const PlanWork::News news = work->take(kLong);
  ASSERT_TRUE(news.plan);
  EXPECT_EQ(news.plan->strategy, "empty");
  EXPECT_TRUE(news.is_final);
  EXPECT_FALSE(work->take(kLong).plan);
}

TEST(PlanMaker, TellsThatNoThreadCouldBeStarted) {
  const Strategy strategy{"empty", "", "", &empty_plan};
  PlanMaker maker(options(strategy, PlanningMoment::kInBackground));
  const auto outcome =
      swap::run_with_failing_calls({{SYS_clone3, EAGAIN}, {SYS_clone, EAGAIN}}, [&] {
        const auto work = maker.order(crowded_step());
        return work->take(kLong).failure.find("no thread could be started") == 0;
      });
  if (outcome == swap::ChildOutcome::kCannotFilter) GTEST_SKIP() << "no filter for system calls";
  EXPECT_EQ(outcome, swap::ChildOutcome::kTrue);
}

TEST(PlanMaker, TellsStrategiesToEndAndWaitsForThem) {
  const Strategy strategy{"endless", "", "", &endless};
  std::shared_ptr<PlanWork> work;
  ended = 0;
  {
    PlanMaker maker(options(strategy, PlanningMoment::kInBackground));
    work = maker.order(crowded_step());
  }
  EXPECT_EQ(ended, 1);
  EXPECT_TRUE(work->take(Duration{0}).is_final);
}

/// Time that passes only while searches rest, and 50 ms of a processor between two looks at them.
struct Rested {
  PlanMaker::Pace pace() {
    return {clock, [this] { return used += 0.05; },
            [this](Duration time) {
              clock->advance(time);
              total += time;
              priority = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()));
            }};
  }

  std::shared_ptr<ManualClock> clock = std::make_shared<ManualClock>();
  double used = 0.0;
  Duration total{0};
  int priority = 0;
};

TEST(PlanMaker, HoldsBackSearchesForStepsThatHaveAPlan) {
  Rested rested;
  {
    PlanMaker maker(
        {.moment = PlanningMoment::kInBackground, .recomputes = true, .processors = 2.0},
        rested.pace());
    PlanMaker::Order order = long_step();
    order.is_urgent = false;
    EXPECT_TRUE(last_news(*maker.order(order)).plan);
  }
  EXPECT_EQ(rested.priority, 19);
  // All but 20 ms, which may be saved up, are a hundredth of the time of one processor.
  EXPECT_GE(rested.total, std::chrono::milliseconds(3000));
}

int priority_of_strategy = 0;
StepPlan asking(const StepTape&, const SwapLimits&, const planner::StopCheck& should_stop) {
  EXPECT_FALSE(should_stop());
  priority_of_strategy = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()));
  return plan_by("asking");
}

TEST(PlanMaker, HoldsBackNoStrategyByName) {
  const Strategy strategy{"asking", "", "", &asking};
  Rested rested;
  priority_of_strategy = -1;
  {
    PlanMaker maker(options(strategy, PlanningMoment::kInBackground), rested.pace());
    PlanMaker::Order order = crowded_step();
    order.is_urgent = false;
    EXPECT_EQ(last_news(*maker.order(order)).plan->strategy, "asking");
  }
  EXPECT_EQ(priority_of_strategy, ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid())));
  EXPECT_EQ(rested.total, Duration(0));
}

TEST(PlanMaker, EndsWorkThatNobodyWaitsFor) {
  const Strategy strategy{"endless", "", "", &endless};
  PlanMaker maker(options(strategy, PlanningMoment::kInBackground));
  const auto first = maker.order(crowded_step());
  const auto second = maker.order(crowded_step());
  first->cancel();
  EXPECT_EQ(last_news(*first).plan->strategy, "endless");
  EXPECT_FALSE(second->take(Duration{0}).is_final);
}

}  // namespace
}  // namespace spillway::runtime
