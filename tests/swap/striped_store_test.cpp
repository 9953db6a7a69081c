#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "store/ram/factory.h"
#include "store/retrying/factory.h"
#include "store/striped/factory.h"
#include "support/fault_store.h"
#include "support/golden_part.h"
#include "support/page_patterns.h"

namespace spillway::swap {
namespace {

const SteadyClock kClock;

class StripedStoreTest : public testing::Test {
 protected:
  std::unique_ptr<SpillStore> ram(std::size_t extents, std::size_t depth = 4) {
    return make_ram_store(Bytes(extents * kExtentBytes), depth, notifier_);
  }

  /// A disk that takes `transfers` and then fails every write.
  std::unique_ptr<SpillStore> dying(std::size_t extents, std::size_t transfers) {
    auto faulty = std::make_unique<FaultStore>(ram(extents), notifier_,
                                               FaultOptions{.transfers_until_death = transfers});
    return make_retrying_store(std::move(faulty), notifier_, kClock,
                               {.attempts_max = 2, .first_pause = Duration(0)});
  }

  void open(std::unique_ptr<SpillStore> a, std::unique_ptr<SpillStore> b) {
    children_ = {a.get(), b.get()};
    std::vector<std::unique_ptr<SpillStore>> both;
    both.push_back(std::move(a));
    both.push_back(std::move(b));
    store_ = make_striped_store(std::move(both), notifier_);
  }

  std::uint64_t extents_in(std::size_t child) const {
    return children_[child]->report().extents_in_use.count() / kExtentBytes;
  }
  int write(ExtentId extent, std::uint64_t pattern) {
    pages_.fill(0, pattern);
    return carry_out(*store_, {Direction::kWrite, extent, pages_[0], kExtentBytes, 0}).error;
  }
  bool brings_back(ExtentId extent, std::uint64_t pattern) {
    const auto result = carry_out(*store_, {Direction::kRead, extent, pages_[1], kExtentBytes, 0});
    return result.error == 0 && pages_.holds(1, pattern);
  }

  std::shared_ptr<Notifier> notifier_ = std::make_shared<Notifier>();
  PatternPages pages_{16};
  std::vector<SpillStore*> children_;
  std::unique_ptr<SpillStore> store_;
};

TEST_F(StripedStoreTest, TakesTurnsBetweenEqualDisks) {
  open(ram(20), ram(20));
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(store_->reserve_extent());
    ASSERT_TRUE(store_->reserve_extent());
    EXPECT_EQ(extents_in(0), extents_in(1));
  }
}

TEST_F(StripedStoreTest, FillsDisksByTheirFreeSpace) {
  open(ram(90), ram(30));
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(store_->reserve_extent());
  EXPECT_EQ(extents_in(0), 30U);
  EXPECT_EQ(extents_in(1), 10U);
}

TEST_F(StripedStoreTest, UsesTheOtherDiskWhenOneIsFull) {
  GoldenPart golden;
  open(ram(2), ram(30));
  for (int i = 0; i < 32; ++i) ASSERT_TRUE(store_->reserve_extent()) << i;
  EXPECT_EQ(extents_in(0), 2U);
  EXPECT_FALSE(store_->reserve_extent());
  golden.add(store_->report().refusal);
}

TEST_F(StripedStoreTest, AvoidsADiskWhoseQueueHasFallenBehind) {
  open(ram(40, 16), ram(40, 16));
  std::vector<ExtentId> extents;
  for (int i = 0; i < 10; ++i) extents.push_back(*store_->reserve_extent());
  for (std::size_t i = 0; i < extents.size(); i += 2)  // every second one is on the same disk
    store_->submit({Direction::kWrite, extents[i], pages_[i], kExtentBytes, i});
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(store_->reserve_extent());
  EXPECT_EQ(extents_in(0), 5U);
  EXPECT_EQ(extents_in(1), 11U);
  EXPECT_EQ(reap_all(*store_, 5).size(), 5U);
}

TEST_F(StripedStoreTest, QueuesWhatOneDiskCannotTakeAtOnce) {
  open(ram(40, 2), ram(40, 6));
  ASSERT_EQ(store_->queue_depth(), 8U);
  std::vector<ExtentId> on_first;
  for (int i = 0; i < 16; ++i) {
    const ExtentId extent = *store_->reserve_extent();
    if (extent.value() % 2 == 0) on_first.push_back(extent);
  }
  ASSERT_EQ(on_first.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i)
    store_->submit({Direction::kWrite, on_first[i], pages_[i], kExtentBytes, i});
  EXPECT_EQ(children_[0]->in_flight(), 2U);
  const auto results = reap_all(*store_, 8);
  ASSERT_EQ(results.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(results[i].transfer.tag, i) << "out of order";
}

TEST_F(StripedStoreTest, LeavesAFailedDiskOutAndReadsOnFromIt) {
  open(dying(40, 4), ram(40));
  std::vector<std::pair<ExtentId, std::uint64_t>> stored;
  int failures = 0;
  for (std::uint64_t pattern = 1; pattern <= 40; ++pattern) {
    const auto extent = store_->reserve_extent();
    ASSERT_TRUE(extent);
    if (write(*extent, pattern) == 0)
      stored.emplace_back(*extent, pattern);
    else
      ++failures;
  }
  EXPECT_EQ(failures, 1) << "one write finds out; the others go elsewhere";
  EXPECT_EQ(stored.size(), 39U);
  EXPECT_EQ(extents_in(0), 5U);
  for (const auto& [extent, pattern] : stored) EXPECT_TRUE(brings_back(extent, pattern)) << extent;
  EXPECT_EQ(store_->report().refusal, "") << "the other disk still takes extents";
}

TEST_F(StripedStoreTest, RefusesWhenAllDisksHaveFailed) {
  GoldenPart golden;
  open(dying(40, 0), dying(40, 0));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(write(*store_->reserve_extent(), 1), EIO);
  EXPECT_FALSE(store_->reserve_extent());
  golden.add(store_->report().refusal);
}

}  // namespace
}  // namespace spillway::swap
