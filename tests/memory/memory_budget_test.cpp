#include "spillway/memory/memory_budget.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace spillway::memory {
namespace {

TEST(MemoryBudget, CountsFramesAndSmallBlocksTogether) {
  MemoryBudget budget(10_MiB);
  ASSERT_TRUE(budget.try_take_frames(4));
  ASSERT_TRUE(budget.try_take_small(1_MiB));
  EXPECT_EQ(budget.counted(), 9_MiB);
  EXPECT_EQ(budget.frames(), 8_MiB);
  EXPECT_EQ(budget.small(), 1_MiB);
  EXPECT_EQ(budget.room(), 1_MiB);
  EXPECT_EQ(budget.frames_that_fit(), 0U);
}

TEST(MemoryBudget, RefusesTheFirstByteTooMany) {
  MemoryBudget budget(2_MiB + 100_B);
  ASSERT_TRUE(budget.try_take_frames(1));
  EXPECT_FALSE(budget.try_take_frames(1));
  EXPECT_FALSE(budget.try_take_small(101_B));
  EXPECT_TRUE(budget.try_take_small(100_B));
  EXPECT_FALSE(budget.try_take_small(1_B));
  EXPECT_EQ(budget.counted(), budget.limit());
}

TEST(MemoryBudget, RefusesSizesThatWouldOverflow) {
  MemoryBudget budget(2_MiB);
  ASSERT_TRUE(budget.try_take_small(1_B));
  EXPECT_FALSE(budget.try_take_small(Bytes(~std::uint64_t{0})));
  EXPECT_EQ(budget.counted(), 1_B);
}

TEST(MemoryBudget, RemembersItsPeaks) {
  MemoryBudget budget(8_MiB);
  ASSERT_TRUE(budget.try_take_frames(3));
  budget.release_frames(2);
  ASSERT_TRUE(budget.try_take_small(3_MiB));
  budget.release_small(3_MiB);
  budget.add_live(40_MiB);
  budget.remove_live(10_MiB);
  EXPECT_EQ(budget.counted_peak(), 6_MiB);
  EXPECT_EQ(budget.small_peak(), 3_MiB);
  EXPECT_EQ(budget.live(), 30_MiB);
  EXPECT_EQ(budget.live_peak(), 40_MiB);
}

TEST(MemoryBudgetDeathTest, NoticesBytesThatWereNeverCounted) {
  MemoryBudget budget(8_MiB);
  EXPECT_DEATH(budget.release_small(1_B), "");
  EXPECT_DEATH(budget.release_frames(1), "");
}

TEST(MemoryBudget, ThreadsTogetherNeverGetMoreThanTheLimit) {
  MemoryBudget budget(5_MiB);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&budget, seed] {
      std::mt19937 random(seed);
      for (int step = 0; step < 20000; ++step) {
        const Bytes size(1 + random() % 3'000'000);
        if (random() % 2 == 0) {
          if (budget.try_take_small(size)) budget.release_small(size);
        } else if (budget.try_take_frames(1)) {
          budget.release_frames(1);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.counted(), 0_B);
  EXPECT_EQ(budget.small(), 0_B);
  EXPECT_GT(budget.counted_peak(), 0_B);
  EXPECT_LE(budget.counted_peak(), budget.limit());
}

TEST(Reservation, ReturnsItsBytesWhenItDies) {
  MemoryBudget budget(1_MiB);
  {
    const Reservation room = budget.reserve_small(1_MiB);
    EXPECT_TRUE(room.is_granted());
    EXPECT_FALSE(budget.reserve_small(1_B).is_granted());
  }
  EXPECT_EQ(budget.counted(), 0_B);
}

TEST(Reservation, MovesItsBytesOnce) {
  MemoryBudget budget(1_MiB);
  Reservation first = budget.reserve_small(10_B);
  Reservation second = budget.reserve_small(20_B);
  second = std::move(first);
  EXPECT_EQ(budget.counted(), 10_B) << "what the target held was returned";
  EXPECT_EQ(second.size(), 10_B);
}

TEST(Reservation, LeavesItsBytesCountedWhenKept) {
  MemoryBudget budget(1_MiB);
  EXPECT_EQ(budget.reserve_small(10_B).keep(), 10_B);
  EXPECT_EQ(budget.counted(), 10_B);
  budget.release_small(10_B);
}

}  // namespace
}  // namespace spillway::memory
