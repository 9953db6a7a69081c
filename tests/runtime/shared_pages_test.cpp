// Storages that are smaller than pages, in a runtime with a real engine.

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "spillway/base/error.h"
#include "spillway/memory/host_pages.h"
#include "spillway/runtime/runtime.h"
#include "store/ram/factory.h"
#include "support/best_mapper.h"
#include "support/forwarding_store.h"
#include "support/manual_clock.h"
#include "support/named_op.h"
#include "support/running_op.h"
#include "support/sanitized.h"

namespace spillway::runtime {
namespace {

using memory::kPageBytes;
using memory::kPageSize;

constexpr std::size_t kQuarter = kPageBytes / 4;

/// Each write takes a millisecond of a clock that nothing else moves.
class SlowStore final : public swap::ForwardingStore {
 public:
  SlowStore(std::unique_ptr<swap::SpillStore> child, ManualClock& clock)
      : ForwardingStore(std::move(child)), clock_(clock) {}

 private:
  void do_submit(const swap::Transfer& transfer) override {
    if (transfer.direction == swap::Direction::kWrite) clock_.advance(std::chrono::milliseconds(1));
    ForwardingStore::do_submit(transfer);
  }

  ManualClock& clock_;
};

class SharedPagesTest : public ::testing::Test {
 protected:
  SharedPagesTest() {
    auto notifier = std::make_shared<swap::Notifier>();
    swap::SwapEngineOptions engine;
    engine.budget = kPageSize * 12;
    engine.arena_size = 8_GiB;
    RuntimeOptions options;
    options.budget = engine.budget;
    auto store =
        std::make_unique<SlowStore>(swap::make_ram_store(kPageSize * 1024, 4, notifier), clock_);
    runtime_ = std::make_unique<Runtime>(
        options,
        std::make_unique<swap::SwapEngine>(engine, memory::make_host_pages(best_mapper()),
                                           std::move(store), clock_),
        clock_);
  }

  /// An operator that makes a storage of `size` bytes and writes `value` to its ends.
  std::uint64_t* make(std::size_t size, std::uint64_t value) {
    const NamedOp text("make");
    const RunningOp op(*runtime_, 1, {}, text);
    auto* const made = static_cast<std::uint64_t*>(runtime_->allocate(size));
    made[0] = made[size / sizeof value - 1] = value;
    return made;
  }

  /// An operator that reads one; whether both of its ends still hold `value`.
  bool holds(const std::uint64_t* memory, std::size_t size, std::uint64_t value) {
    const RangeUse use = runtime_->find(memory);
    const NamedOp text("read");
    const RunningOp op(*runtime_, 2, {}, text, {}, {&use, 1});
    return memory[0] == value && memory[size / sizeof value - 1] == value;
  }

  ManualClock clock_;
  std::unique_ptr<Runtime> runtime_;
};

TEST_F(SharedPagesTest, HoldSeveralStoragesAndEndWithTheLast) {
  std::vector<std::uint64_t*> made;
  for (std::uint64_t i = 0; i < 4; ++i) made.push_back(make(kQuarter, i));
  const StorageId page = runtime_->find(made[0]).storage;
  EXPECT_TRUE(runtime_->is_shared(page));
  for (const auto* memory : made) EXPECT_EQ(runtime_->find(memory).storage, page);
  for (auto* memory : made) {
    EXPECT_TRUE(runtime_->is_shared(page));
    runtime_->deallocate(memory);
  }
  EXPECT_FALSE(runtime_->is_shared(page));
  EXPECT_FALSE(runtime_->find(made[0]).storage.is_some());
  EXPECT_EQ(runtime_->engine().statistics().live, Bytes());
}

TEST_F(SharedPagesTest, HaveTheirGapsFilledAgain) {
  std::vector<std::uint64_t*> made;
  for (std::uint64_t i = 0; i < 8; ++i) made.push_back(make(kQuarter, i));
  runtime_->deallocate(made[1]);
  auto* const half = make(kQuarter / 2, 0);
  EXPECT_EQ(half, made[1]);
  EXPECT_EQ(make(kQuarter / 2, 0), made[1] + kQuarter / 2 / sizeof *half);
}

/// Each gradient of a few KiB kept a page of activations alive, and the optimizer fetched them all.
TEST_F(SharedPagesTest, EndAlthoughMuchSmallerStoragesMadeBetweenTheirsLiveOn) {
  std::vector<std::uint64_t*> activations, gradients;
  for (std::uint64_t i = 0; i < 40; ++i) {
    activations.push_back(make(kQuarter - 4096, i));
    gradients.push_back(make(4096, i));
  }
  for (auto* memory : activations) runtime_->deallocate(memory);
  EXPECT_EQ(runtime_->engine().statistics().live, kPageSize);
  for (const auto* memory : gradients)
    EXPECT_EQ(runtime_->find(memory).storage, runtime_->find(gradients[0]).storage);
}

TEST_F(SharedPagesTest, AreNotForStoragesOfPagesOrOfAFewBytes) {
  EXPECT_FALSE(runtime_->is_shared(runtime_->find(make(kPageBytes / 2, 0)).storage));
  void* const tiny = make(4095, 0);
  EXPECT_FALSE(runtime_->find(tiny).storage.is_some());
  runtime_->deallocate(tiny);
  EXPECT_TRUE(runtime_->is_shared(runtime_->find(make(4096, 0)).storage));
}

/// Small tensors, however many, were refused beyond the budget.
TEST_F(SharedPagesTest, LeaveMemoryAndReturn) {
  std::mt19937 random(1);
  std::vector<std::pair<std::uint64_t*, std::size_t>> made;
  Bytes bytes;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const std::size_t size = 4096 + random() % (kPageBytes / 4) / 8 * 8;
    made.emplace_back(make(size, i), size);
    bytes += Bytes(size);
  }
  const swap::SwapStatistics memory = runtime_->engine().statistics();
  EXPECT_GT(bytes, 4 * runtime_->budget());
  EXPECT_LE(memory.counted_peak, runtime_->budget());
  EXPECT_LE(memory.live.count(), bytes.count() * 11 / 10);
  for (std::uint64_t i = made.size(); i-- > 0;)
    ASSERT_TRUE(holds(made[i].first, made[i].second, i)) << i;
  EXPECT_GT(runtime_->engine().statistics().fetched, Bytes());
  EXPECT_EQ(runtime_->engine().statistics().faults, 0u);
  for (const auto& [memory_of, size] : made) runtime_->deallocate(memory_of);
  EXPECT_EQ(runtime_->engine().statistics().live, Bytes());
}

/// Backward frees what forward made last, and needs next what was made before that.
TEST_F(SharedPagesTest, AreFetchedAheadWherePagesEnd) {
  std::vector<std::uint64_t*> made;
  for (std::uint64_t i = 0; i < 200; ++i) made.push_back(make(kQuarter, i));
  ASSERT_EQ(runtime_->engine().statistics().fetched, Bytes());
  for (; made.size() > 120; made.pop_back()) runtime_->deallocate(made.back());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (runtime_->engine().statistics().fetched == Bytes()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::yield();
  }
}

/// Plans would take it for the work of the operators.
TEST_F(SharedPagesTest, TellWhatOperatorsWaitForThem) {
  void* const large = make(kPageBytes, 0);
  for (int i = 0; i < 200; ++i) {
    const RangeUse use = runtime_->find(large);
    const NamedOp text("learned");
    const RunningOp op(*runtime_, 4, {&use, 1}, text);
    runtime_->allocate(kQuarter);
  }
  const std::vector<StallCause> stalls = runtime_->report().stalls;
  ASSERT_FALSE(stalls.empty());
  EXPECT_EQ(stalls.front().op, "learned");
  EXPECT_GE(stalls.front().for_room, std::chrono::milliseconds(1));
}

/// The page of the input has room for the result.
TEST_F(SharedPagesTest, CountOnceForAnOperator) {
  const RangeUse use = runtime_->find(make(kQuarter, 0));
  const NamedOp text("next to it");
  {
    const RunningOp op(*runtime_, 5, {}, text, {}, {&use, 1});
    EXPECT_EQ(runtime_->find(runtime_->allocate(kQuarter)).storage, use.storage);
  }
  EXPECT_EQ(runtime_->report().smallest_budget, 2 * kPageSize);  // One of them is to spare.
}

/// What outlives most others leaves gaps in many pages.
TEST_F(SharedPagesTest, StayDenseWhereStoragesEndInAnyOrder) {
  std::mt19937 random(2);
  std::vector<std::pair<std::uint64_t*, std::size_t>> made;
  std::size_t bytes = 0;
  for (std::uint64_t i = 0; i < tries(20'000U, 6'000U); ++i) {
    if (made.size() > 2000) {
      std::swap(made[random() % made.size()], made.back());
      bytes -= made.back().second;
      runtime_->deallocate(made.back().first);
      made.pop_back();
    }
    const std::size_t size = (4096 + random() % 60'000) / 8 * 8;
    made.emplace_back(make(size, i), size);
    bytes += size;
  }
  EXPECT_LE(runtime_->engine().statistics().live.count(), bytes * 5 / 4);
}

TEST_F(SharedPagesTest, ServeManyThreadsUnderPressure) {
  const auto train = [this](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::pair<std::uint64_t*, std::size_t>> made;
    std::vector<std::uint64_t> values;
    int wrong = 0;
    for (int i = 0; i < tries(600, 150); ++i) {
      const std::size_t size = 4096 + random() % (kPageBytes / 4) / 8 * 8;
      values.push_back(random());
      made.emplace_back(make(size, values.back()), size);
      const std::size_t at = random() % made.size();
      wrong += holds(made[at].first, made[at].second, values[at]) ? 0 : 1;
      if (made.size() < 100) continue;
      runtime_->deallocate(made[at].first);
      made.erase(made.begin() + static_cast<std::ptrdiff_t>(at));
      values.erase(values.begin() + static_cast<std::ptrdiff_t>(at));
    }
    for (const auto& [memory, size] : made) runtime_->deallocate(memory);
    EXPECT_EQ(wrong, 0);
  };
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 4; ++seed) threads.emplace_back(train, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(runtime_->engine().statistics().spilled, Bytes());
  EXPECT_EQ(runtime_->engine().statistics().live, Bytes());
}

/// They were memory that plans could not move, and left what they did not take to others.
TEST_F(SharedPagesTest, AreLearnedAndPlannedWhereTheyAreMuchOfAllMemory) {
  std::vector<std::uint64_t*> made;
  for (int step = 0; step < 12; ++step) {
    runtime_->begin_step();
    for (std::uint64_t i = 0; i < 100; ++i) made.push_back(make(kQuarter, i));
    for (std::uint64_t i = made.size(); i-- > 0;) {
      ASSERT_TRUE(holds(made[i], kQuarter, i));
      runtime_->deallocate(made[i]);
    }
    made.clear();
  }
  const RuntimeReport report = runtime_->report();
  EXPECT_TRUE(report.plans_know_shared);
  EXPECT_TRUE(report.learned.follows_plan);
  EXPECT_GT(report.learned.planned_peak, 6 * kPageSize);
  EXPECT_LE(report.learned.planned_peak, 12 * kPageSize);
  EXPECT_EQ(report.learned.smallest_budget_pages, 1u);
}

TEST_F(SharedPagesTest, AreNotLearnedWhereNothingHasToLeave) {
  for (int step = 0; step < 4; ++step) {
    runtime_->begin_step();
    runtime_->deallocate(make(kQuarter, 1));
  }
  EXPECT_FALSE(runtime_->report().plans_know_shared);
}

/// Accesses that nobody announced come by faults, as those to any other storage.
TEST_F(SharedPagesTest, ComeBackWhereTheyAreTouchedPastTheOperators) {
  std::vector<std::uint64_t*> made;
  for (std::uint64_t i = 0; i < 200; ++i) made.push_back(make(kQuarter, i));
  for (std::uint64_t i = 0; i < made.size(); ++i) ASSERT_EQ(made[i][0]++, i);
  for (std::uint64_t i = 0; i < made.size(); ++i) ASSERT_EQ(made[i][0], i + 1);
}

TEST_F(SharedPagesTest, KeepWhatTheyHaveWhereAnOperatorIsRefused) {
  std::vector<std::uint64_t*> made;
  const NamedOp text("greedy");
  runtime_->announce_op();
  runtime_->begin_op(3, {}, text);
  EXPECT_THROW(
      {
        for (std::uint64_t i = 0; i < 1000; ++i) {
          made.push_back(static_cast<std::uint64_t*>(runtime_->allocate(kQuarter)));
          *made.back() = i;
        }
      },
      BudgetError);
  runtime_->end_op();
  EXPECT_GT(made.size(), 12u * 4);
  for (std::uint64_t i = 0; i < made.size(); ++i) ASSERT_EQ(*made[i], i);
  for (void* memory : made) runtime_->deallocate(memory);
  EXPECT_EQ(runtime_->engine().statistics().live, Bytes());
}

}  // namespace
}  // namespace spillway::runtime
