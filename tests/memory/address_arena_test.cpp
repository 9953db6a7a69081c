#include "spillway/memory/address_arena.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace spillway::memory {
namespace {

TEST(AddressArena, TakesTheLowestRunThatFits) {
  AddressArena arena(10);
  EXPECT_EQ(arena.allocate(3), 0U);
  EXPECT_EQ(arena.allocate(2), 3U);
  EXPECT_EQ(arena.allocate(1), 5U);
  arena.release(3, 2);
  EXPECT_EQ(arena.allocate(3), 6U);
  EXPECT_EQ(arena.allocate(2), 3U);
}

TEST(AddressArena, JoinsNeighboursOfAReleasedRun) {
  AddressArena arena(6);
  for (PageIndex i = 0; i < 3; ++i) ASSERT_EQ(arena.allocate(2), 2 * i);
  arena.release(0, 2);
  arena.release(4, 2);
  EXPECT_EQ(arena.allocate(3), std::nullopt);
  arena.release(2, 2);
  EXPECT_EQ(arena.allocate(6), 0U);
}

TEST(AddressArena, RefusesWhatIsTooLong) {
  AddressArena arena(4);
  EXPECT_EQ(arena.allocate(5), std::nullopt);
  EXPECT_EQ(arena.used_pages(), 0U);
  EXPECT_EQ(AddressArena(0).allocate(1), std::nullopt);
}

TEST(AddressArenaDeathTest, NoticesARunThatIsReleasedTwice) {
  AddressArena arena(8);
  arena.allocate(4);
  arena.allocate(2);
  arena.release(0, 4);
  EXPECT_DEATH(arena.release(0, 2), "");
  EXPECT_DEATH(arena.release(7, 2), "");
}

TEST(AddressArena, RandomOperationsAgreeWithAModel) {
  constexpr PageIndex kPages = 64;
  AddressArena arena(kPages);
  std::vector<bool> used(kPages);
  struct Run {
    PageIndex first;
    PageIndex pages;
  };
  std::vector<Run> runs;
  std::mt19937 random(3);
  const auto lowest_fit = [&](PageIndex pages) -> std::optional<PageIndex> {
    PageIndex length = 0;
    for (PageIndex i = 0; i < kPages; ++i) {
      length = used[i] ? 0 : length + 1;
      if (length == pages) return i + 1 - pages;
    }
    return std::nullopt;
  };
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0) {
      const PageIndex pages = 1 + random() % 9;
      const auto expected = lowest_fit(pages);
      ASSERT_EQ(arena.allocate(pages), expected) << "step " << step;
      if (!expected) continue;
      runs.push_back({*expected, pages});
      std::fill_n(used.begin() + *expected, pages, true);
    } else if (!runs.empty()) {
      std::swap(runs[random() % runs.size()], runs.back());
      arena.release(runs.back().first, runs.back().pages);
      std::fill_n(used.begin() + runs.back().first, runs.back().pages, false);
      runs.pop_back();
    }
    ASSERT_EQ(arena.used_pages(), std::count(used.begin(), used.end(), true));
  }
}

}  // namespace
}  // namespace spillway::memory
