#include "spillway/runtime/recording/op_uses.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <tuple>

namespace spillway::runtime {
namespace {

std::pair<std::uint64_t, std::uint64_t> bytes(std::uint64_t offset, std::vector<std::int64_t> sizes,
                                              std::vector<std::int64_t> strides,
                                              std::size_t item_size) {
  const ViewBytes found = bytes_of_view(offset, sizes, strides, item_size);
  return {found.begin, found.size.count()};
}

using Found = std::pair<std::uint64_t, std::uint64_t>;

TEST(BytesOfView, CoverContiguousTensors) {
  EXPECT_EQ(bytes(0, {3, 4}, {4, 1}, 4), Found(0, 48));
  EXPECT_EQ(bytes(10, {3, 4}, {4, 1}, 2), Found(20, 24));
}

TEST(BytesOfView, OfAScalarAreOneElement) { EXPECT_EQ(bytes(7, {}, {}, 8), Found(56, 8)); }

TEST(BytesOfView, OfAnEmptyTensorAreNone) {
  EXPECT_EQ(bytes(7, {5, 0, 3}, {3, 3, 1}, 4).second, 0u);
  EXPECT_EQ(bytes(7, {0}, {1}, 4).second, 0u);
}

TEST(BytesOfView, FollowStridesInAnyOrder) {
  EXPECT_EQ(bytes(5, {4, 3}, {1, 4}, 1), Found(5, 12));      // Transposed.
  EXPECT_EQ(bytes(0, {2, 10}, {100, 3}, 1), Found(0, 128));  // With gaps.
  EXPECT_EQ(bytes(3, {1000, 2}, {0, 1}, 4), Found(12, 8));   // Expanded.
  EXPECT_EQ(bytes(0, {2000, 4096}, {1000, 1}, 4), Found(0, 4 * (1999 * 1000 + 4096)));  // Overlaps.
}

std::vector<std::tuple<int, int, int, bool>> ordered(const OpUses& uses) {
  std::vector<std::tuple<int, int, int, bool>> list;
  for (const RangeUse& use : uses.list())
    list.emplace_back(use.storage.slot(), use.first, use.touched(), use.writes);
  return list;
}

RangeUse use(int range, std::uint32_t first, std::uint32_t count, bool writes) {
  return {StorageId(static_cast<std::uint32_t>(range), 0), 100, writes, first, count};
}

using List = std::vector<std::tuple<int, int, int, bool>>;

TEST(OpUses, KeepTheOrderOfArgumentsAndGroupPartsOfOneStorage) {
  OpUses uses;
  uses.add(use(5, 40, 10, false));
  uses.add(use(3, 0, 100, true));
  uses.add(use(5, 10, 10, true));
  uses.add(use(5, 20, 20, false));
  uses.add(RangeUse{});
  EXPECT_EQ(ordered(uses),
            (List{{5, 10, 10, true}, {5, 20, 20, false}, {5, 40, 10, false}, {3, 0, 100, true}}));
}

TEST(OpUses, MergePartsThatOverlap) {
  OpUses uses;
  uses.add(use(1, 10, 10, false));
  uses.add(use(1, 40, 10, false));
  uses.add(use(1, 70, 10, true));
  uses.add(use(1, 15, 40, false));
  EXPECT_EQ(ordered(uses), (List{{1, 10, 45, false}, {1, 70, 10, true}}));
  uses.add({StorageId(1, 0), 100, false});
  EXPECT_EQ(ordered(uses), (List{{1, 0, 100, true}}));
}

TEST(OpUses, CoverEachPageOnceWhateverTheOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    OpUses uses;
    std::array<std::array<int, 100>, 3> expected{};  // 0: not used, 1: read, 2: written.
    for (int i = 0; i < 12; ++i) {
      const int range = static_cast<int>(random() % 3);
      const std::uint32_t first = random() % 100;
      const std::uint32_t count = 1 + random() % std::min<std::uint32_t>(20, 100 - first);
      const bool writes = random() % 4 == 0;
      uses.add(use(range, first, count, writes));
      for (std::uint32_t page = first; page < first + count; ++page)
        expected[range][page] = std::max(expected[range][page], writes ? 2 : 1);
    }
    std::array<std::array<int, 100>, 3> found{};
    for (const RangeUse& each : uses.list()) {
      for (std::uint32_t page = each.first; page < each.first + each.touched(); ++page) {
        int& state = found[each.storage.slot()][page];
        ASSERT_EQ(state, 0) << "page " << page << " twice";
        state = each.writes ? 2 : 1;
      }
    }
    for (int range = 0; range < 3; ++range) {
      for (int page = 0; page < 100; ++page) {
        ASSERT_EQ(found[range][page] > 0, expected[range][page] > 0);
        ASSERT_GE(found[range][page], expected[range][page]);
      }
    }
  }
}

}  // namespace
}  // namespace spillway::runtime
