// Ranges whose bytes are given up and recomputed.

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "pages_cases.h"
#include "spillway/memory/host_pages.h"
#include "spillway/swap/swap_engine.h"
#include "support/lock_in_memory.h"
#include "support/residency_orders.h"
#include "support/sanitized.h"

namespace spillway::swap {
namespace {

class SwapEngineDropTest : public PagesTest {
 protected:
  std::unique_ptr<SwapEngine> engine(std::size_t pages) {
    SwapEngineOptions options;
    options.budget = page_size() * pages;
    options.arena_size = 8_GiB;
    return make_engine(options, ram_store(64), clock_);
  }

  /// Puts `first_word` and what follows it into a range that was dropped, as a replay would.
  static void compute_again(SwapEngine& swap, StorageId dropped, std::size_t pages,
                            std::uint64_t first_word) {
    PinSet pins;
    const auto made = swap.allocate(page_size() * pages, &pins);
    for (std::size_t page = 0; page < pages; ++page) word(made.address, page) = first_word + page;
    EXPECT_TRUE(swap.adopt(dropped, made.storage, pins));
    swap.unpin(pins);
    swap.release(made.storage);
  }

  SteadyClock clock_;
};

TEST_P(SwapEngineDropTest, GivesFramesBackWithoutAWriteAndTakesThoseOfAnotherRange) {
  auto swap = engine(4);
  const auto value = swap->allocate(page_size() * 3, nullptr);
  for (std::size_t page = 0; page < 3; ++page) word(value.address, page) = page + 1;
  finish_operators();
  ASSERT_TRUE(swap->drop(value.storage));
  EXPECT_TRUE(swap->is_dropped(value.storage));
  EXPECT_FALSE(swap->drop(value.storage));
  // Its frames are free: nothing has to leave for a range of the same size.
  const auto other = swap->allocate(page_size() * 3, nullptr);
  swap->release(other.storage);
  compute_again(*swap, value.storage, 3, 1);
  EXPECT_FALSE(swap->is_dropped(value.storage));
  for (std::size_t page = 0; page < 3; ++page) EXPECT_EQ(word(value.address, page), page + 1);
  const SwapStatistics counts = swap->statistics();
  EXPECT_EQ(counts.spilled, Bytes());
  EXPECT_EQ(counts.faults, 0u);
  EXPECT_EQ(counts.dropped, page_size() * 3);
  EXPECT_LE(counts.counted_peak, page_size() * 4);
}

TEST_P(SwapEngineDropTest, KeepsWhatOperatorsHold) {
  auto swap = engine(8);
  const auto value = swap->allocate(page_size() * 2, nullptr);
  word(value.address, 1) = 7;
  PinSet pins;
  const RangeUse uses[] = {swap->find(value.address)};
  swap->pin(pins, uses);
  EXPECT_FALSE(swap->drop(value.storage));
  swap->unpin(pins);
  EXPECT_EQ(word(value.address, 1), 7u);
}

TEST_P(SwapEngineDropTest, DropsTheCopyInTheStoreToo) {
  auto swap = engine(4);
  const auto value = swap->allocate(page_size() * 3, nullptr);
  for (std::size_t page = 0; page < 3; ++page) word(value.address, page) = page + 1;
  finish_operators();
  write_out(*swap, RangePart(value.storage), 3);
  while (swap->statistics().spilled < page_size() * 3) std::this_thread::yield();
  while (!swap->drop(value.storage)) std::this_thread::yield();
  EXPECT_EQ(swap->statistics().store.extents_in_use, Bytes());
  compute_again(*swap, value.storage, 3, 50);
  for (std::size_t page = 0; page < 3; ++page) EXPECT_EQ(word(value.address, page), page + 50);
}

TEST_P(SwapEngineDropTest, LetsWhoTouchesItWaitUntilItIsThereAsAWhole) {
  auto swap = engine(8);
  const auto value = swap->allocate(page_size() * 2, nullptr);
  ASSERT_TRUE(swap->drop(value.storage));
  std::thread computer([&] {
    const StorageId wanted = swap->wait_for_wanted();
    EXPECT_EQ(wanted, value.storage);
    compute_again(*swap, wanted, 2, 30);
    EXPECT_FALSE(swap->wait_for_wanted().is_some());
  });
  EXPECT_EQ(word(value.address, 1), 31u);
  swap->end_drops();
  computer.join();
  EXPECT_EQ(swap->statistics().faults, reports_accesses() ? 1U : 0U);
  EXPECT_FALSE(swap->drop(value.storage)) << "touched past the operators: may be so again";
}

TEST_P(SwapEngineDropTest, CountsATouchOnceHoweverOftenWhoWaitsLooksAgain) {
  SPILLWAY_NEEDS_REPORTS();
  auto swap = engine(8);
  const auto value = swap->allocate(page_size() * 2, nullptr);
  ASSERT_TRUE(swap->drop(value.storage));
  std::thread reader([&] { EXPECT_EQ(word(value.address, 1), 31u); });
  EXPECT_EQ(swap->wait_for_wanted(), value.storage);
  // Whoever waits in its own trap looks now and then, and asks again.
  const bool looks_again =
      GetParam() == memory::MapperKind::kSignal || GetParam() == memory::MapperKind::kCopy;
  if (looks_again) {
    EXPECT_EQ(swap->wait_for_wanted(), value.storage);
  }
  compute_again(*swap, value.storage, 2, 30);
  reader.join();
  EXPECT_EQ(swap->statistics().faults, 1u);
}

TEST_P(SwapEngineDropTest, ForgetsWhoTouchedWhatHasComeBack) {
  SPILLWAY_NEEDS_REPORTS();
  auto swap = engine(8);
  const auto value = swap->allocate(page_size() * 2, nullptr);
  const auto other = swap->allocate(page_size() * 2, nullptr);
  ASSERT_TRUE(swap->drop(value.storage));
  ASSERT_TRUE(swap->drop(other.storage));
  std::thread first([&] { EXPECT_EQ(word(value.address, 0), 30u); });
  EXPECT_EQ(swap->wait_for_wanted(), value.storage);
  std::thread second([&] { EXPECT_EQ(word(value.address, 1), 31u); });
  while (swap->statistics().faults < 2) std::this_thread::yield();  // While somebody computes.
  compute_again(*swap, value.storage, 2, 30);
  first.join();
  second.join();
  std::thread third([&] { EXPECT_EQ(word(other.address, 0), 40u); });
  EXPECT_EQ(swap->wait_for_wanted(), other.storage);
  compute_again(*swap, other.storage, 2, 40);
  third.join();
  swap->end_drops();
}

TEST_P(SwapEngineDropTest, LetsOperatorsWaitThatNobodyPrepared) {
  auto swap = engine(8);
  const auto value = swap->allocate(page_size() * 2, nullptr);
  ASSERT_TRUE(swap->drop(value.storage));
  std::thread computer([&] { compute_again(*swap, swap->wait_for_wanted(), 2, 30); });
  PinSet pins;
  const RangeUse uses[] = {swap->find(value.address)};
  swap->pin(pins, uses);
  EXPECT_EQ(word(value.address, 0), 30u);
  swap->unpin(pins);
  computer.join();
  EXPECT_EQ(swap->statistics().faults, 0u);
}

TEST_P(SwapEngineDropTest, LooksAgainAtWhatHadComeBackBeforeAnotherWait) {
  auto swap = engine(8);
  const auto first = swap->allocate(page_size() * 2, nullptr);
  const auto second = swap->allocate(page_size() * 2, nullptr);
  ASSERT_TRUE(swap->drop(first.storage));
  ASSERT_TRUE(swap->drop(second.storage));
  std::thread trainer([&] {
    PinSet pins;
    const RangeUse uses[] = {swap->find(first.address), swap->find(second.address)};
    swap->pin(pins, uses);
    EXPECT_FALSE(swap->is_dropped(first.storage));
    EXPECT_EQ(word(first.address, 0), 50u);
    EXPECT_EQ(word(second.address, 0), 40u);
    swap->unpin(pins);
    swap->end_drops();
  });
  EXPECT_EQ(swap->wait_for_wanted(), first.storage);
  compute_again(*swap, first.storage, 2, 30);
  EXPECT_EQ(swap->wait_for_wanted(), second.storage);
  EXPECT_TRUE(swap->drop(first.storage)) << "nobody holds it yet";
  compute_again(*swap, second.storage, 2, 40);
  // None where the operator runs on without it.
  if (swap->wait_for_wanted() == first.storage) compute_again(*swap, first.storage, 2, 50);
  trainer.join();
}

TEST_P(SwapEngineDropTest, TakesACopyOfWhatCannotMoveAndMakesRoomForIt) {
  if (running.device) GTEST_SKIP() << "frames of this device always move";
  auto swap = engine(4);
  const auto value = swap->allocate(page_size() * 2, nullptr);
  ASSERT_TRUE(swap->drop(value.storage));
  const auto other = swap->allocate(page_size() * 2, nullptr);  // May leave.
  for (std::size_t page = 0; page < 2; ++page) word(other.address, page) = 70 + page;
  PinSet pins;
  const auto made = swap->allocate(page_size() * 2, &pins);
  for (std::size_t page = 0; page < 2; ++page) word(made.address, page) = 30 + page;
  if (!lock_in_memory(made.address, 2)) GTEST_SKIP() << "mlock is limited here";
  ASSERT_TRUE(swap->adopt(value.storage, made.storage, pins));
  swap->unpin(pins);
  swap->release(made.storage);
  for (std::size_t page = 0; page < 2; ++page) EXPECT_EQ(word(value.address, page), 30 + page);
  for (std::size_t page = 0; page < 2; ++page) EXPECT_EQ(word(other.address, page), 70 + page);
}

TEST_P(SwapEngineDropTest, SaysThatThereIsNoRoomForACopyOfWhatCannotMove) {
  if (running.device) GTEST_SKIP() << "frames of this device always move";
  auto swap = engine(4);
  const auto value = swap->allocate(page_size() * 2, nullptr);
  ASSERT_TRUE(swap->drop(value.storage));
  PinSet pins;
  const auto made = swap->allocate(page_size() * 2, &pins);
  const auto held = swap->allocate(page_size() * 2, &pins);
  for (std::size_t page = 0; page < 2; ++page) word(made.address, page) = 30 + page;
  if (!lock_in_memory(made.address, 2)) GTEST_SKIP() << "mlock is limited here";
  try {
    ASSERT_TRUE(swap->adopt(value.storage, made.storage, pins)) << "they move here";
  } catch (const NoRoomError&) {
    EXPECT_TRUE(swap->is_dropped(value.storage));
    swap->release(held.storage);
    ASSERT_TRUE(swap->adopt(value.storage, made.storage, pins));
  }
  swap->unpin(pins);
  swap->release(made.storage);
  for (std::size_t page = 0; page < 2; ++page) EXPECT_EQ(word(value.address, page), 30 + page);
}

TEST_P(SwapEngineDropTest, TellsOperatorsWhyItCannotComeBack) {
  auto swap = engine(8);
  const auto value = swap->allocate(page_size() * 2, nullptr);
  ASSERT_TRUE(swap->drop(value.storage));
  std::thread computer([&] { swap->give_up(swap->wait_for_wanted(), "no room for its inputs"); });
  PinSet pins;
  const RangeUse uses[] = {swap->find(value.address)};
  try {
    swap->pin(pins, uses);
    ADD_FAILURE() << "nobody has computed it";
  } catch (const RecomputeError& error) {
    EXPECT_NE(std::string(error.what()).find("no room for its inputs"), std::string::npos);
  }
  computer.join();
}

TEST_P(SwapEngineDropTest, EndsWithoutEverComingBack) {
  auto swap = engine(4);
  const auto value = swap->allocate(page_size() * 3, nullptr);
  ASSERT_TRUE(swap->drop(value.storage));
  swap->release(value.storage);
  const auto next = swap->allocate(page_size() * 4, nullptr);
  word(next.address, 3) = 5;
  EXPECT_EQ(word(next.address, 3), 5u);
  EXPECT_EQ(swap->statistics().live, page_size() * 4);
}

TEST_P(SwapEngineDropTest, EndsAForkedChildThatTouchesIt) {
  SPILLWAY_NEEDS_REPORTS();
  if (kIsSanitized) GTEST_SKIP() << "sanitizers answer signals of children themselves";
  auto swap = engine(4);
  const auto value = swap->allocate(page_size() * 2, nullptr);
  ASSERT_TRUE(swap->drop(value.storage));
  swap->before_fork();
  const pid_t child = ::fork();
  if (child == 0) {
    swap->after_fork_in_child();
    ::_exit(word(value.address, 0) == 0 ? 3 : 4);  // Whatever it reads would be wrong.
  }
  swap->after_fork_in_parent();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << "exited with " << WEXITSTATUS(status);
}

INSTANTIATE_TEST_SUITE_P(Pages, SwapEngineDropTest, testing::ValuesIn(all_pages()), pages_case);

}  // namespace
}  // namespace spillway::swap
