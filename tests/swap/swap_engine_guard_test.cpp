// Ranges that are written past the operators only after somebody has allowed it.

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "mapper_cases.h"
#include "spillway/memory/host_pages.h"
#include "spillway/swap/spill_store_factory.h"
#include "spillway/swap/swap_engine.h"
#include "spillway/swap/transfer_observer.h"
#include "support/hand_write.h"
#include "support/lock_in_memory.h"
#include "support/residency_orders.h"

namespace spillway::swap {
namespace {

using memory::kPageBytes;
using memory::kPageSize;

constexpr std::size_t kPages = 3;  // Of each range.
constexpr std::size_t kBudgetPages = 8;

std::uint64_t& word(std::byte* memory, std::size_t page) {
  return *reinterpret_cast<std::uint64_t*>(memory + page * kPageBytes);
}

/// Does something, once, when the engine begins to transfer.
class OnTransfer final : public TransferObserver {
 public:
  void begin_transfer(const Transfer&, StorageId, bool, TimePoint) override {
    if (act) std::exchange(act, nullptr)();
  }
  void end_transfers(std::span<const TransferResult>, TimePoint, Bytes) override {}

  std::function<void()> act;
};

class SwapEngineGuardTest : public MapperTest {
 protected:
  void SetUp() override {
    MapperTest::SetUp();
    if (IsSkipped()) return;
    SpillStoreOptions store;
    store.kind = StoreKind::kRam;
    store.ram_capacity = kPageSize * 64;
    SwapEngineOptions options;
    options.budget = kPageSize * kBudgetPages;
    options.arena_size = 8_GiB;
    options.observers = {&on_transfer_};
    swap_ = std::make_unique<SwapEngine>(options, memory::make_host_pages(GetParam()),
                                         make_spill_store(store).store, clock_);
  }

  SwapEngine::Allocation range(std::uint64_t first_word) {
    const auto made = swap_->allocate(kPageSize * kPages, nullptr);
    for (std::size_t page = 0; page < kPages; ++page) word(made.address, page) = first_word + page;
    return made;
  }

  /// Makes all of it leave, which is in memory.
  void push_out(StorageId range) {
    const SwapStatistics before = swap_->statistics();
    const auto left = [&] {
      const SwapStatistics now = swap_->statistics();
      return now.spilled - before.spilled + (now.left_clean - before.left_clean);
    };
    write_out(*swap_, range, kPages);
    while (left() < kPageSize * kPages) std::this_thread::yield();
  }

  void use(const SwapEngine::Allocation& made, bool writes) {
    PinSet pins;
    const RangeUse use{made.storage, kPages, writes};
    swap_->pin(pins, {&use, 1});
    swap_->unpin(pins);
  }

  /// Changes a word past the operators. `meanwhile` runs while whoever does so waits. False when
  /// nobody had to wait.
  bool write_by_hand(
      const SwapEngine::Allocation& made, std::size_t page, std::uint64_t value,
      const std::function<void()>& meanwhile = [] {}) {
    bool waits = false;
    std::atomic<bool> is_allowed{false};
    std::thread server([&] {
      const StorageId wanted = swap_->wait_for_wanted();
      if (!wanted.is_some()) return;
      waits = wanted == made.storage && swap_->is_write_awaited(wanted);
      meanwhile();
      is_allowed = true;
      swap_->unguard(wanted);
    });
    put(word(made.address, page), value);
    if (!is_allowed) swap_->end_drops();  // It has passed by itself: the server waits for nobody.
    server.join();
    return waits;
  }

  OnTransfer on_transfer_;
  SteadyClock clock_;
  std::unique_ptr<SwapEngine> swap_;
};

TEST_P(SwapEngineGuardTest, LetsAWriteWaitUntilItIsAllowed) {
  const auto value = range(1);
  ASSERT_TRUE(swap_->guard(value.storage));
  EXPECT_TRUE(write_by_hand(value, 1, 70, [&] { EXPECT_EQ(word(value.address, 1), 2u); }));
  EXPECT_EQ(word(value.address, 1), 70u);
  EXPECT_FALSE(swap_->is_write_awaited(value.storage));
  put(word(value.address, 0), 60);  // The rest is open, too.
  EXPECT_EQ(swap_->statistics().faults, 1u);
  EXPECT_FALSE(swap_->drop(value.storage)) << "touched past the operators: may be so again";
}

TEST_P(SwapEngineGuardTest, LetsReadsAndAnnouncedWritesPass) {
  const auto value = range(1);
  ASSERT_TRUE(swap_->guard(value.storage));
  EXPECT_EQ(word(value.address, 2), 3u);
  use(value, /*writes=*/false);
  EXPECT_TRUE(swap_->is_under_pressure()) << "else nobody would announce anything";
  use(value, /*writes=*/true);
  for (std::size_t page = 0; page < kPages; ++page) put(word(value.address, page), 80);
  EXPECT_EQ(swap_->statistics().faults, 0u);
  EXPECT_TRUE(swap_->drop(value.storage));
}

TEST_P(SwapEngineGuardTest, CanBeSetAgain) {
  const auto value = range(1);
  for (std::uint64_t round = 0; round < 3; ++round) {
    ASSERT_TRUE(swap_->guard(value.storage));
    ASSERT_TRUE(swap_->guard(value.storage));
    EXPECT_TRUE(write_by_hand(value, 1, 70 + round));
    EXPECT_EQ(word(value.address, 1), 70 + round);
  }
}

TEST_P(SwapEngineGuardTest, CoversPagesThatHaveLeftAndComeBack) {
  const auto value = range(1);
  ASSERT_TRUE(swap_->guard(value.storage));
  push_out(value.storage);
  use(value, /*writes=*/false);
  EXPECT_TRUE(write_by_hand(value, 1, 70));
  ASSERT_TRUE(swap_->guard(value.storage));
  push_out(value.storage);
  EXPECT_EQ(word(value.address, 2), 3u) << "past the operators, and so is the rest";
  EXPECT_TRUE(write_by_hand(value, 2, 71));
  use(value, /*writes=*/false);
  ASSERT_TRUE(swap_->guard(value.storage));
  push_out(value.storage);
  EXPECT_TRUE(write_by_hand(value, 0, 72)) << "at the first touch";
  EXPECT_EQ(word(value.address, 0), 72u);
  EXPECT_EQ(word(value.address, 1), 70u);
  EXPECT_EQ(word(value.address, 2), 71u);
}

TEST_P(SwapEngineGuardTest, CoversPagesThatAreFetchedWithoutACopy) {
  const auto value = range(1);
  ASSERT_TRUE(swap_->guard(value.storage));
  push_out(value.storage);
  fetch(*swap_, RangePart(value.storage), OnFetch::kDropStoreCopy);
  while (swap_->statistics().fetched < kPageSize * kPages) std::this_thread::yield();
  use(value, /*writes=*/false);
  EXPECT_EQ(swap_->statistics().store.extents_in_use, Bytes());
  EXPECT_TRUE(write_by_hand(value, 1, 70));
  push_out(value.storage);
  EXPECT_EQ(word(value.address, 0), 1u);
  EXPECT_EQ(word(value.address, 1), 70u);
}

TEST_P(SwapEngineGuardTest, CoversPagesThatWereOutAndNeverFilled) {
  const auto filler = swap_->allocate(kPageSize * 7, nullptr);
  const auto value = swap_->allocate_unfilled(kPageSize * kPages);
  swap_->release(filler.storage);
  ASSERT_TRUE(swap_->guard(value.storage));
  use(value, /*writes=*/false);
  EXPECT_TRUE(write_by_hand(value, 1, 70));
  EXPECT_EQ(word(value.address, 1), 70u);
}

TEST_P(SwapEngineGuardTest, KeepsBytesThatLeaveBeforeTheWriteIsAllowed) {
  const auto value = range(1);
  ASSERT_TRUE(swap_->guard(value.storage));
  EXPECT_TRUE(write_by_hand(value, 1, 70, [&] { push_out(value.storage); }));
  EXPECT_EQ(word(value.address, 0), 1u);
  EXPECT_EQ(word(value.address, 1), 70u);
}

TEST_P(SwapEngineGuardTest, StaysWhereADropHasEnded) {
  const auto value = range(1);
  ASSERT_TRUE(swap_->guard(value.storage));
  ASSERT_TRUE(swap_->drop(value.storage));
  const auto compute_again = [&] {
    PinSet pins;
    const auto made = swap_->allocate(kPageSize * kPages, &pins);
    for (std::size_t page = 0; page < kPages; ++page) put(word(made.address, page), 30 + page);
    EXPECT_TRUE(swap_->adopt(value.storage, made.storage, pins));
    swap_->unpin(pins);
    swap_->release(made.storage);
  };
  compute_again();
  EXPECT_TRUE(write_by_hand(value, 1, 70));
  EXPECT_EQ(word(value.address, 0), 30u);
  EXPECT_EQ(word(value.address, 1), 70u);
}

TEST_P(SwapEngineGuardTest, StaysWhereAWriteHasEndedADrop) {
  const auto value = range(1);
  ASSERT_TRUE(swap_->guard(value.storage));
  ASSERT_TRUE(swap_->drop(value.storage));
  std::thread writer([&] { put(word(value.address, 1), 70); });
  ASSERT_EQ(swap_->wait_for_wanted(), value.storage);
  PinSet pins;
  const auto made = swap_->allocate(kPageSize * kPages, &pins);
  for (std::size_t page = 0; page < kPages; ++page) put(word(made.address, page), 30 + page);
  ASSERT_TRUE(swap_->adopt(value.storage, made.storage, pins));
  swap_->unpin(pins);
  while (!swap_->is_write_awaited(value.storage))
    EXPECT_EQ(swap_->wait_for_wanted(), value.storage);
  EXPECT_EQ(word(value.address, 1), 31u) << "as it was computed";
  swap_->unguard(value.storage);
  writer.join();
  EXPECT_EQ(word(value.address, 1), 70u);
}

TEST_P(SwapEngineGuardTest, HoldsForWhatIsBackWhileTheRestWaitsForRoom) {
  const auto value = range(1);
  ASSERT_TRUE(swap_->guard(value.storage));
  ASSERT_TRUE(swap_->drop(value.storage));
  PinSet pins;
  const auto made = swap_->allocate(kPageSize * kPages, &pins);
  const auto others = swap_->allocate(kPageSize * (kBudgetPages - kPages), nullptr);
  for (std::size_t page = 0; page < kPages; ++page) put(word(made.address, page), 30 + page);
  if (!lock_in_memory(made.address + kPageBytes, 1)) GTEST_SKIP() << "mlock is limited here";
  std::atomic<bool> has_written{false};
  std::thread writer;
  on_transfer_.act = [&, faults = swap_->statistics().faults] {
    writer = std::thread([&] {
      put(word(value.address, 0), 70);
      has_written = true;
    });
    while (!has_written && swap_->statistics().faults == faults) std::this_thread::yield();
  };
  ASSERT_TRUE(swap_->adopt(value.storage, made.storage, pins));
  swap_->unpin(pins);
  if (!writer.joinable()) GTEST_SKIP() << "what is locked moves under this mapper";
  EXPECT_FALSE(has_written);
  EXPECT_EQ(word(value.address, 0), 30u) << "as it was computed";
  swap_->unguard(value.storage);
  writer.join();
  EXPECT_EQ(word(value.address, 0), 70u);
  EXPECT_EQ(word(value.address, 1), 31u);
  swap_->release(others.storage);
}

TEST_P(SwapEngineGuardTest, IsRefusedWhileASystemCallHoldsTheRange) {
  const auto value = range(1);
  const RangeUse use{value.storage, kPages, true, 1, 1};
  for (const Hold hold : {Hold::kSystemCall, Hold::kKernel}) {
    PinSet held(hold);
    swap_->pin(held, {&use, 1});
    EXPECT_FALSE(swap_->guard(value.storage));
    put(word(value.address, 1), 70);
    swap_->unpin(held);
  }
  EXPECT_EQ(swap_->statistics().faults, 0u);
  EXPECT_TRUE(swap_->guard(value.storage));
}

TEST_P(SwapEngineGuardTest, EndsWithTheThreadThatAllowsWrites) {
  const auto value = range(1);
  const auto other = range(11);
  ASSERT_TRUE(swap_->guard(value.storage));
  ASSERT_TRUE(swap_->guard(other.storage));
  std::thread writer([&] { put(word(value.address, 1), 70); });
  EXPECT_EQ(swap_->wait_for_wanted(), value.storage);
  swap_->end_drops();
  writer.join();
  put(word(other.address, 1), 71);
  EXPECT_EQ(swap_->statistics().faults, 1u);
  EXPECT_FALSE(swap_->guard(value.storage));
}

TEST_P(SwapEngineGuardTest, IsForgottenWithTheRange) {
  const auto value = range(1);
  ASSERT_TRUE(swap_->guard(value.storage));
  swap_->release(value.storage);
  const auto next = range(1);  // In its place.
  EXPECT_EQ(next.storage.slot(), value.storage.slot());
  EXPECT_NE(next.storage, value.storage);
  EXPECT_FALSE(write_by_hand(next, 1, 70));
}

// The kernel moves no page that a child shares before it has been copied.
TEST_P(SwapEngineGuardTest, StaysWhileAForkedChildSharesThePages) {
  const auto value = range(1);
  ASSERT_TRUE(swap_->guard(value.storage));
  std::array<int, 2> go{};
  ASSERT_EQ(::pipe(go.data()), 0);
  swap_->before_fork();
  const pid_t child = ::fork();
  if (child == 0) {
    swap_->after_fork_in_child();
    char letter = 0;
    if (::read(go[0], &letter, 1) != 1) ::_exit(9);
    word(value.address, 1) += 40;
    ::_exit(static_cast<int>(word(value.address, 1)));
  }
  swap_->after_fork_in_parent();
  EXPECT_TRUE(write_by_hand(value, 1, 70, [&] {
    push_out(value.storage);
    // Whoever waits to write looks for its page again under some mappers.
    EXPECT_LE(swap_->resident(), kPageSize);
    EXPECT_EQ(word(value.address, 1), 2u) << "open for a moment";
  }));
  EXPECT_EQ(word(value.address, 0), 1u);
  EXPECT_EQ(word(value.address, 1), 70u);
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 42) << "the child has its own bytes";
  ::close(go[0]);
  ::close(go[1]);
}

INSTANTIATE_TEST_SUITE_P(Mappers, SwapEngineGuardTest, all_mappers(), mapper_case);

}  // namespace
}  // namespace spillway::swap
