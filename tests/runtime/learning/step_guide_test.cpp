// The learner between the threads of a trainer, with an engine that has room for everything.
#include "spillway/runtime/learning/step_guide.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "spillway/memory/host_pages.h"
#include "spillway/planner/strategies.h"
#include "spillway/swap/spill_store_factory.h"
#include "support/best_mapper.h"
#include "support/manual_clock.h"

namespace spillway::runtime {
namespace {

constexpr std::uint32_t kPages = 3;  // Of each storage.
constexpr std::uint32_t kLayers = 6;

std::unique_ptr<swap::SwapEngine> make_engine(const Clock& clock) {
  swap::SpillStoreOptions store;
  store.kind = swap::StoreKind::kRam;
  store.ram_capacity = memory::kPageSize * 16;
  swap::SwapEngineOptions options;
  options.budget = memory::kPageSize * 64;
  options.arena_size = 8_GiB;
  return std::make_unique<swap::SwapEngine>(options, memory::make_host_pages(best_mapper()),
                                            swap::make_spill_store(store).store, clock);
}

/// A chain of layers, forward and backward, told to the guide by one thread.
class Chain {
 public:
  Chain(StepGuide& guide, swap::SwapEngine& engine, ManualClock& clock, StepGuide::Thread thread)
      : guide_(guide), engine_(engine), clock_(clock), thread_(thread), input_(make()) {}
  ~Chain() { engine_.release(input_); }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  void step() {
    guide_.step_boundary(thread_);
    std::vector<StorageId> values;
    for (std::uint32_t i = 0; i < kLayers; ++i) op(i, i == 0 ? input_ : values.back(), &values);
    for (; !values.empty(); values.pop_back()) {
      const std::uint64_t signature = 100 + values.size();
      const auto due = guide_.due_replays(thread_, signature, use(values.back()));
      if (!due.places.empty() && when_due) when_due(due);
      op(signature, values.back(), nullptr);
      guide_.freed(values.back());
      engine_.release(values.back());
    }
  }

  /// What the thread does with what it is told.
  std::function<void(const StepGuide::DueReplays&)> when_due;

  void op(std::uint64_t signature, StorageId in, std::vector<StorageId>* made) {
    StepGuide::Wish wish;
    guide_.begin_op(thread_, signature, use(in), {.is_replayable = true}, nullptr, wish);
    clock_.advance(std::chrono::milliseconds(10));
    if (made != nullptr) made->push_back(make());
    guide_.end_op(thread_, wish);
  }

 private:
  std::array<RangeUse, 1> use(StorageId storage) const { return {RangeUse{storage, kPages}}; }
  StorageId make() {
    const auto made = engine_.allocate(memory::kPageSize * kPages, nullptr);
    guide_.allocated(thread_, made.storage, kPages, memory::kPageSize * kPages, true);
    return made.storage;
  }

  StepGuide& guide_;
  swap::SwapEngine& engine_;
  ManualClock& clock_;
  const StepGuide::Thread thread_;
  const StorageId input_;
};

// The thread was held up before it ran them. By then there was another plan, or none.
TEST(StepGuide, IgnoresReplaysThatWereDueBeforeAnotherThreadTrained) {
  ManualClock clock;
  const auto engine = make_engine(clock);
  StepGuide guide({.budget_pages = 5 * kPages,
                   .planning = {.recomputes = true, .strategy = &planner::strategy_named("dtr")}},
                  *engine, clock);
  const int first = 0;
  const int second = 0;
  Chain chain(guide, *engine, clock, &first);
  for (int i = 0; i < 6; ++i) chain.step();
  int held_up = 0;
  chain.when_due = [&](const StepGuide::DueReplays& due) {
    StepGuide::Wish wish;
    guide.step_boundary(&second);
    for (std::uint64_t op = 0; op < 3; ++op) {
      ASSERT_TRUE(guide.begin_op(&second, 900 + op, {}, {}, nullptr, wish));
      guide.end_op(&second, wish);
    }
    wish = {};
    for (std::size_t i = 0; i < due.places.size(); ++i) {
      guide.begin_replay(due, i);
      guide.end_replay(due, i, std::chrono::hours(1), Bytes(), wish);
    }
    EXPECT_FALSE(wish.forgets);
    EXPECT_TRUE(wish.drops.empty());
    ++held_up;
  };
  chain.step();
  EXPECT_EQ(held_up, 1);
}

TEST(StepGuide, IgnoresReplaysThatWereDueBeforeAnEarlierOperator) {
  ManualClock clock;
  const auto engine = make_engine(clock);
  StepGuide guide({.budget_pages = 5 * kPages,
                   .planning = {.recomputes = true, .strategy = &planner::strategy_named("dtr")}},
                  *engine, clock);
  const int thread = 0;
  Chain chain(guide, *engine, clock, &thread);
  for (int i = 0; i < 6; ++i) chain.step();
  std::size_t wishes = 0;
  const auto run_all = [&](const StepGuide::DueReplays& due) {
    StepGuide::Wish wish;
    for (std::size_t i = 0; i < due.places.size(); ++i) {
      guide.begin_replay(due, i);
      guide.end_replay(due, i, Duration(0), Bytes(), wish);
    }
    wishes += wish.drops.size() + (wish.forgets ? 1 : 0);
  };
  std::optional<StepGuide::DueReplays> latest;
  chain.when_due = [&](const StepGuide::DueReplays& due) {
    run_all(due);
    latest = due;
  };
  chain.step();
  ASSERT_TRUE(latest);
  EXPECT_GT(wishes, 0u) << "those that are due do what the plan wants";
  wishes = 0;
  run_all(*latest);
  EXPECT_EQ(wishes, 0u);
}

TEST(StepGuide, ReportsOnceTheLearnerIsFree) {
  ManualClock clock;
  const auto engine = make_engine(clock);
  std::promise<void> has_paused;
  std::promise<void> is_free;
  std::optional<LearnerReport> hasty;
  std::optional<LearnerReport> patient;
  std::thread asker;
  StepGuide* asked = nullptr;
  const auto ask = [&] {
    hasty = asked->report(Duration(0));
    patient = asked->report(std::chrono::milliseconds(2), [&](Duration) {
      has_paused.set_value();
      is_free.get_future().wait();
    });
  };
  StepGuide guide({.budget_pages = 5 * kPages,
                   .take_peak =
                       [&] {
                         if (!asker.joinable()) {
                           asker = std::thread(ask);
                           has_paused.get_future().wait();
                         }
                         return engine->take_peak();
                       },
                   .planning = {.recomputes = true, .strategy = &planner::strategy_named("dtr")}},
                  *engine, clock);
  asked = &guide;
  const int thread = 0;
  Chain chain(guide, *engine, clock, &thread);
  for (int i = 0; i < 6; ++i) chain.step();
  ASSERT_TRUE(asker.joinable()) << "the learner has not asked for a peak";
  is_free.set_value();
  asker.join();
  EXPECT_FALSE(hasty);
  ASSERT_TRUE(patient);
  EXPECT_GT(patient->steps, 0u);
}

}  // namespace
}  // namespace spillway::runtime
