#include "spillway/runtime/recording/storage_pieces.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace spillway::runtime {
namespace {

constexpr std::uint32_t kBudget = 64;  // Pages: storages from 9 on are large, pieces have 4.

RangeUse use(std::uint32_t range, std::uint32_t pages, std::uint32_t first, std::uint32_t count,
             bool writes = false) {
  return {StorageId(range, 0), pages, writes, first, count};
}

struct Shown {
  std::vector<PieceUse> uses;
  std::vector<PieceId> ended;
};

Shown shown(StoragePieces& pieces, std::vector<RangeUse> uses) {
  Shown result;
  pieces.translate(uses, result.uses, result.ended);
  return result;
}

TEST(StoragePieces, LeavesStoragesWhole) {
  StoragePieces pieces(kBudget);
  const Shown all = shown(pieces, {use(3, 20, 0, 20, true), use(4, 8, 2, 3)});
  ASSERT_EQ(all.uses.size(), 2u);
  EXPECT_TRUE(all.ended.empty());
  EXPECT_EQ(all.uses[0].pages, 20u);
  EXPECT_TRUE(all.uses[0].writes);
  EXPECT_EQ(all.uses[1].pages, 8u);  // Small: it moves as a whole, whatever part was used.
  EXPECT_EQ(pieces.part_of(all.uses[0].piece).storage, StorageId(3, 0));
  EXPECT_EQ(pieces.part_of(all.uses[0].piece).count, swap::kToTheEnd);
}

TEST(StoragePieces, ShowsPartsOfOneSmallStorageAsOneUse) {
  StoragePieces pieces(kBudget);
  const Shown all = shown(pieces, {use(4, 8, 0, 1), use(4, 8, 5, 2, true)});
  ASSERT_EQ(all.uses.size(), 1u);
  EXPECT_TRUE(all.uses[0].writes);
}

TEST(StoragePieces, CutsALargeStorageThatIsUsedInPart) {
  StoragePieces pieces(kBudget);
  const Shown first = shown(pieces, {use(3, 18, 3, 2, true)});
  ASSERT_EQ(first.uses.size(), 2u);
  EXPECT_EQ(first.ended, std::vector<PieceId>{pieces.whole(StorageId(3, 0))});
  const RangePart second = pieces.part_of(first.uses[1].piece);
  EXPECT_EQ(second.storage, StorageId(3, 0));
  EXPECT_EQ(second.first, 4u);
  EXPECT_EQ(second.count, 4u);
  const Shown whole = shown(pieces, {use(3, 18, 0, 18)});
  ASSERT_EQ(whole.uses.size(), 5u);
  EXPECT_TRUE(whole.ended.empty());
  EXPECT_EQ(whole.uses[4].pages, 2u);
  EXPECT_EQ(whole.uses[1].piece, first.uses[1].piece);
  const Shown twice = shown(pieces, {use(3, 18, 0, 1), use(3, 18, 2, 1, true)});
  ASSERT_EQ(twice.uses.size(), 1u);
  EXPECT_TRUE(twice.uses[0].writes);
}

TEST(StoragePieces, CutsOnlyWhatIsLargerThanAskedFor) {
  StoragePieces pieces(kBudget, kBudget);
  EXPECT_EQ(shown(pieces, {use(3, kBudget, 3, 2)}).uses[0].piece, pieces.whole(StorageId(3, 0)));
  EXPECT_FALSE(pieces.is_whole(shown(pieces, {use(4, kBudget + 1, 3, 1)}).uses[0].piece));
}

TEST(StoragePieces, ForgetsThePiecesOfTheDead) {
  StoragePieces pieces(kBudget);
  shown(pieces, {use(3, 18, 3, 2)});
  std::vector<PieceId> ended;
  pieces.freed(StorageId(3, 0), ended);
  EXPECT_EQ(ended.size(), 5u);
  const Shown again = shown(pieces, {use(3, 18, 0, 18)});
  ASSERT_EQ(again.uses.size(), 1u);
  EXPECT_EQ(again.uses[0].piece, pieces.whole(StorageId(3, 0)));
  ended.clear();
  pieces.freed(StorageId(3, 0), ended);
  EXPECT_EQ(ended, std::vector<PieceId>{pieces.whole(StorageId(3, 0))});
}

TEST(StoragePieces, NeverGivesOneIdToTwoLivingStorages) {
  StoragePieces pieces(kBudget);
  std::mt19937 random(11);
  std::map<std::uint32_t, std::uint32_t> live;  // Pages by storage.
  for (int i = 0; i < 2000; ++i) {
    const std::uint32_t range = random() % 20;
    std::vector<PieceId> ended;
    if (live.contains(range) && random() % 4 == 0) {
      pieces.freed(StorageId(range, 0), ended);
      for (const PieceId piece : ended)
        EXPECT_EQ(pieces.part_of(piece).storage, StorageId(range, 0));
      live.erase(range);
      continue;
    }
    const std::uint32_t pages = live.try_emplace(range, 1 + random() % 30).first->second;
    const std::uint32_t first = random() % pages;
    const std::uint32_t count = 1 + random() % (pages - first);
    std::uint32_t covered = first;
    for (const PieceUse& each : shown(pieces, {use(range, pages, first, count)}).uses) {
      const RangePart part = pieces.part_of(each.piece);
      ASSERT_EQ(part.storage, StorageId(range, 0));
      ASSERT_LE(part.first, covered);
      covered = part.first + std::min(part.count, pages - part.first);
    }
    EXPECT_GE(covered, first + count);
  }
}

}  // namespace
}  // namespace spillway::runtime
