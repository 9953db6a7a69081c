// What the runtime of a device that works behind the host's back learns of its operators.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/planner/strategies.h"
#include "spillway/runtime/recording/profile_recording.h"
#include "spillway/runtime/runtime.h"
#include "support/forwarding_store.h"
#include "support/named_op.h"
#include "support/running_op.h"
#include "support/timed_stream.h"
#include "swap/pages_cases.h"

namespace spillway::runtime {
namespace {

using std::chrono::milliseconds;
using swap::page_size;

std::vector<profile::StepTape> planned;  // A strategy is a plain function.
ManualClock* planning_clock = nullptr;

planner::StepPlan keep_tape(const profile::StepTape& tape, const planner::SwapLimits& limits,
                            const planner::StopCheck& should_stop) {
  planned.push_back(tape);
  planning_clock->advance(std::chrono::seconds(1));  // The step waits for it.
  return planner::strategy_named("demand").plan(tape, limits, should_stop);
}

/// The host's clock, by which nothing takes no time: each wait is seen.
class TickingClock final : public Clock {
 public:
  explicit TickingClock(const Clock& clock) : clock_(clock) {}
  TimePoint now() const override { return clock_.now() + Duration(++ticks_); }

 private:
  const Clock& clock_;
  mutable std::atomic<Duration::rep> ticks_{0};
};

/// Reads take a while.
class SlowReads final : public swap::ForwardingStore {
 public:
  SlowReads(std::unique_ptr<swap::SpillStore> child, ManualClock& clock)
      : ForwardingStore(std::move(child)), clock_(clock) {}

 private:
  void do_submit(const swap::Transfer& transfer) override {
    if (transfer.direction == swap::Direction::kRead) clock_.advance(milliseconds(40));
    child_->submit(transfer);
  }

  ManualClock& clock_;
};

class DeviceLearningTest : public swap::PagesTest {
 protected:
  void SetUp() override {
    PagesTest::SetUp();
    planned.clear();
    planning_clock = &clock_;
  }
  void TearDown() override {
    runtime_.reset();
    PagesTest::TearDown();
  }

  void make(std::size_t pages, ProfileRecording* recording = nullptr) {
    swap::SwapEngineOptions engine;
    engine.budget = page_size() * pages;
    engine.arena_size = 1_GiB;
    RuntimeOptions options;
    options.number = 1;
    options.moment = [this] { return stream_.record(); };
    options.budget = engine.budget;
    options.min_storage = page_size();
    options.planning.strategy = &strategy_;
    options.recording = recording;
    auto store = std::make_unique<SlowReads>(swap::ram_store(64), clock_);
    runtime_ = std::make_unique<Runtime>(options, make_engine(engine, std::move(store), ticking_),
                                         ticking_);
  }

  void op(std::uint64_t signature, std::optional<void*> used, Duration kernel,
          const std::function<std::vector<StorageId>()>& body = {}) {
    std::vector<RangeUse> uses;
    if (used) uses.push_back(runtime_->find(*used));
    const NamedOp text("op");
    RunningOp op(*runtime_, signature, uses, text);
    if (body) op.results = body();
    stream_.launch(kernel);
  }

  /// An operator that makes a storage.
  void* made_by(std::uint64_t signature, Duration kernel = {}, std::size_t pages = 1) {
    void* made = nullptr;
    op(signature, {}, kernel, [&] {
      made = runtime_->allocate(page_size().count() * pages);
      return std::vector{runtime_->find(made).storage};
    });
    return made;
  }

  const planner::Strategy strategy_{"kept", "", "", keep_tape};
  ManualClock clock_;
  TickingClock ticking_{clock_};
  TimedStream stream_{clock_};
  std::unique_ptr<Runtime> runtime_;
};

std::vector<Duration> times_of(const profile::StepTape& tape) {
  std::vector<Duration> times;
  for (const auto& op : tape.ops) times.push_back(op.time);
  return times;
}

// Backward runs on a thread of its own.
TEST_P(DeviceLearningTest, TakesThreadsThatTakeTurnsForOneTrainer) {
  make(3);
  void* const parameters = made_by(1, {}, 2);
  for (int step = 0; step < 6; ++step) {
    runtime_->step_boundary();
    void* const activation = made_by(2, milliseconds(10), 2);
    std::thread([&] {
      op(3, activation, milliseconds(30));
      runtime_->deallocate(activation);
    }).join();
    op(4, parameters, milliseconds(5));
    stream_.synchronize();
  }
  ASSERT_FALSE(planned.empty());
  EXPECT_EQ(times_of(planned.back()),
            (std::vector<Duration>{milliseconds(10), milliseconds(30), milliseconds(5)}));
  EXPECT_EQ(planned.back().values.size(), 2U) << "the parameters, and the activation with its end";
  EXPECT_TRUE(runtime_->report().learned.follows_plan);
  EXPECT_EQ(runtime_->report().learned.deviations, 0U);
}

// An operator lasts 10 ms, and then the device has nothing to do while its next one waits.
TEST_P(DeviceLearningTest, LeavesOutWhatTheDeviceRanDryWhilePagesCame) {
  make(4);
  std::vector<void*> made;
  for (std::uint64_t i = 0; i < 6; ++i) made.push_back(made_by(10 + i));
  for (int step = 0; step < 3; ++step) {
    runtime_->step_boundary();
    for (std::uint64_t i = 0; i < 6; ++i) op(20 + i, made[i], milliseconds(10));
  }
  EXPECT_GE(runtime_->engine().statistics().fetched, page_size() * 6);
  ASSERT_FALSE(planned.empty());
  EXPECT_EQ(times_of(planned.front()), std::vector<Duration>(6, milliseconds(10)));
}

// The device needs 30 ms for what the host gives it in no time, and is a step behind.
TEST_P(DeviceLearningTest, RecordsWhatTheDeviceSays) {
  ProfileRecording recording({.steps = 5, .page_size = page_size(), .is_timed_on_device = true});
  make(8, &recording);
  void* const parameters = made_by(1, {}, 2);
  const auto train = [&](Duration beside) {
    runtime_->step_boundary();
    void* const activation = made_by(2, milliseconds(10) + beside, 2);
    op(3, activation, milliseconds(30));
    runtime_->deallocate(activation);
    op(4, parameters, milliseconds(5));
  };
  for (int step = 0; step < 4; ++step) train(Duration(0));
  EXPECT_THROW(recording.profile({}, {}, {}), PlanError) << "it has told nothing yet";
  for (int step = 0; step < 5; ++step) {
    stream_.synchronize();
    train(milliseconds(step));
  }
  EXPECT_TRUE(recording.is_complete());
  const profile::StepProfile profile = recording.profile({}, {}, {});
  EXPECT_EQ(profile.origin.clock, profile::kDeviceEvents);
  EXPECT_GE(profile.origin.steps, 5U);
  EXPECT_EQ(profile.page_size, page_size());
  const std::vector<Duration> times = times_of(profile.tape);
  ASSERT_EQ(times.size(), 3U);
  EXPECT_GE(times[0], milliseconds(10));
  EXPECT_LE(times[0], milliseconds(14));
  EXPECT_EQ(times[1], milliseconds(30));
  EXPECT_EQ(times[2], milliseconds(5));
  for (Duration spread : profile.spread_of_op) EXPECT_LE(spread, milliseconds(4));
}

INSTANTIATE_TEST_SUITE_P(Pages, DeviceLearningTest, testing::Values(swap::PagesCase()),
                         swap::pages_case);

}  // namespace
}  // namespace spillway::runtime
