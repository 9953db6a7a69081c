#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "spillway/swap/spill_store.h"
#include "support/page_patterns.h"

namespace spillway::swap {

/// What every store must do. A backend joins with a fixture that has
///   `std::unique_ptr<SpillStore> open(std::size_t extents, std::size_t depth)`
/// (a new, empty store that holds `extents` extents; `depth` is what its queue takes at least) and
///   INSTANTIATE_TYPED_TEST_SUITE_P(Name, SpillStoreConformance, Fixture);
/// Where it may be impossible, it has `std::string why_not() const`, which is empty where it is
/// not.
template <typename Fixture>
class SpillStoreConformance : public testing::Test {
 protected:
  static constexpr std::size_t kExtents = 24;
  static constexpr std::size_t kDepth = 8;

  void SetUp() override {
    if constexpr (requires { fixture_.why_not(); })
      if (const std::string why = fixture_.why_not(); !why.empty()) GTEST_SKIP() << why;
    store_ = fixture_.open(kExtents, kDepth);
    ASSERT_NE(store_, nullptr);
    ASSERT_GE(store_->queue_depth(), kDepth);
  }

  std::vector<ExtentId> reserve_all() {
    std::vector<ExtentId> extents;
    while (const auto extent = store_->reserve_extent()) extents.push_back(*extent);
    return extents;
  }

  /// Moves page i to or from extent i for all of them, `kDepth` at a time.
  void move_all(Direction direction, const std::vector<ExtentId>& extents) {
    std::vector<int> times_finished(extents.size());
    std::size_t next = 0;
    std::size_t finished = 0;
    while (finished < extents.size()) {
      while (next < extents.size() && store_->in_flight() < kDepth) {
        store_->submit({direction, extents[next], pages_[next], kExtentBytes, next});
        ++next;
      }
      for (const TransferResult& result : reap_all(*store_, 1)) {
        ASSERT_EQ(result.error, 0) << result.detail;
        ASSERT_EQ(result.transfer.extent, extents[result.transfer.tag]);
        ASSERT_EQ(++times_finished[result.transfer.tag], 1);
        ++finished;
      }
    }
    EXPECT_EQ(store_->in_flight(), 0U);
  }

  TransferResult write(ExtentId extent, std::size_t page, std::size_t size = kExtentBytes) {
    return carry_out(*store_, {Direction::kWrite, extent, pages_[page], size, page});
  }
  TransferResult read(ExtentId extent, std::size_t page, std::size_t size = kExtentBytes) {
    return carry_out(*store_, {Direction::kRead, extent, pages_[page], size, page});
  }

  Fixture fixture_;
  decltype(pages_for(fixture_, 0)) pages_ = pages_for(fixture_, kExtents + kDepth);
  std::unique_ptr<SpillStore> store_;
};

TYPED_TEST_SUITE_P(SpillStoreConformance);

TYPED_TEST_P(SpillStoreConformance, BringsBackWhatWasWritten) {
  std::uint64_t pattern = 100;
  for (const std::size_t size : {std::size_t{4096}, kExtentBytes / 2 + 4096, kExtentBytes}) {
    const auto extent = this->store_->reserve_extent();
    ASSERT_TRUE(extent);
    this->pages_.fill(0, ++pattern, size);
    const TransferResult written = this->write(*extent, 0, size);
    ASSERT_EQ(written.error, 0) << written.detail;
    EXPECT_EQ(written.transfer.size, size);
    const TransferResult back = this->read(*extent, 1, size);
    ASSERT_EQ(back.error, 0) << back.detail;
    EXPECT_EQ(back.transfer.memory, this->pages_[1]);
    EXPECT_TRUE(this->pages_.holds(1, pattern, size));
  }
}

TYPED_TEST_P(SpillStoreConformance, CarriesManyTransfersAtOnce) {
  const auto extents = this->reserve_all();
  ASSERT_EQ(extents.size(), TestFixture::kExtents);
  for (std::size_t i = 0; i < extents.size(); ++i) this->pages_.fill(i, 7 + i);
  ASSERT_NO_FATAL_FAILURE(this->move_all(Direction::kWrite, extents));
  for (std::size_t i = 0; i < extents.size(); ++i) this->pages_.fill(i, 0);
  ASSERT_NO_FATAL_FAILURE(this->move_all(Direction::kRead, extents));
  for (std::size_t i = 0; i < extents.size(); ++i) EXPECT_TRUE(this->pages_.holds(i, 7 + i)) << i;
}

TYPED_TEST_P(SpillStoreConformance, RefusesWithAReasonWhenFull) {
  const auto extents = this->reserve_all();
  ASSERT_EQ(extents.size(), TestFixture::kExtents);
  EXPECT_EQ(std::set<ExtentId>(extents.begin(), extents.end()).size(), extents.size());
  EXPECT_FALSE(this->store_->reserve_extent());
  EXPECT_NE(this->store_->report().refusal.find("No space left in "), std::string::npos)
      << this->store_->report().refusal;
}

TYPED_TEST_P(SpillStoreConformance, MakesRoomByRelease) {
  const auto extents = this->reserve_all();
  ASSERT_EQ(extents.size(), TestFixture::kExtents);
  this->pages_.fill(0, 1);
  ASSERT_EQ(this->write(extents[5], 0).error, 0);
  this->store_->release_extent(extents[3]);
  const auto again = this->store_->reserve_extent();
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, extents[3]);
  EXPECT_EQ(this->store_->report().refusal, "");
  this->pages_.fill(1, 2);
  ASSERT_EQ(this->write(*again, 1).error, 0);
  ASSERT_EQ(this->read(extents[5], 2).error, 0);
  EXPECT_TRUE(this->pages_.holds(2, 1)) << "a neighbour was overwritten";
  ASSERT_EQ(this->read(*again, 2).error, 0);
  EXPECT_TRUE(this->pages_.holds(2, 2));
}

TYPED_TEST_P(SpillStoreConformance, WakeEndsTheNextWait) {
  this->store_->wake();
  std::vector<TransferResult> results;
  this->store_->reap(results, std::chrono::hours(1));
  EXPECT_TRUE(results.empty());
}

TYPED_TEST_P(SpillStoreConformance, WakeEndsAWaitFromAnotherThread) {
  std::vector<TransferResult> results;
  for (int round = 0; round < 50; ++round) {
    std::thread waker([this] { this->store_->wake(); });
    this->store_->reap(results, std::chrono::hours(1));
    waker.join();
  }
  EXPECT_TRUE(results.empty());
}

TYPED_TEST_P(SpillStoreConformance, ReapEndsWithNothingInFlight) {
  std::vector<TransferResult> results;
  this->store_->reap(results, std::chrono::milliseconds(0));
  this->store_->reap(results, std::chrono::milliseconds(2));
  EXPECT_TRUE(results.empty());
}

TYPED_TEST_P(SpillStoreConformance, CountsBytesAndExtents) {
  EXPECT_EQ(this->store_->report().extents_in_use, Bytes());
  const auto extent = this->store_->reserve_extent();
  ASSERT_TRUE(extent);
  this->pages_.fill(0, 1);
  ASSERT_EQ(this->write(*extent, 0).error, 0);
  ASSERT_EQ(this->read(*extent, 0).error, 0);
  ASSERT_EQ(this->read(*extent, 1).error, 0);
  const StoreReport report = this->store_->report();
  EXPECT_EQ(report.written, Bytes(kExtentBytes));
  EXPECT_EQ(report.read, Bytes(2 * kExtentBytes));
  EXPECT_EQ(report.extents_in_use, Bytes(kExtentBytes));
  EXPECT_EQ(report.capacity, Bytes(TestFixture::kExtents * kExtentBytes));
  EXPECT_GT(report.busy_time.count(), 0);
  this->store_->release_extent(*extent);
  EXPECT_EQ(this->store_->report().extents_in_use, Bytes());
  EXPECT_EQ(this->store_->report().extents_peak, Bytes(kExtentBytes));
}

TYPED_TEST_P(SpillStoreConformance, ReservesOnManyThreadsWhileBytesMove) {
  const auto fixed = this->store_->reserve_extent();
  ASSERT_TRUE(fixed);
  std::atomic<bool> is_over{false};
  std::atomic<int> doubles{0};
  std::vector<std::atomic<int>> owners(4 * TestFixture::kExtents);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!is_over.load()) {
        const auto extent = this->store_->reserve_extent();
        static_cast<void>(this->store_->report());
        if (!extent) continue;
        std::atomic<int>& owner = owners.at(extent->value());
        if (owner.fetch_add(1) != 0 || *extent == *fixed) ++doubles;
        owner.fetch_sub(1);
        this->store_->release_extent(*extent);
      }
    });
  }
  for (std::uint64_t round = 1; round <= 20; ++round) {
    this->pages_.fill(0, round);
    EXPECT_EQ(this->write(*fixed, 0).error, 0);
    EXPECT_EQ(this->read(*fixed, 1).error, 0);
    EXPECT_TRUE(this->pages_.holds(1, round));
  }
  is_over.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(doubles.load(), 0);
}

TYPED_TEST_P(SpillStoreConformance, KeepsEveryExtentThroughARandomWalk) {
  std::mt19937 random(42);
  std::map<ExtentId, std::uint64_t> stored;
  std::uint64_t pattern = 0;
  for (int step = 0; step < 150; ++step) {
    const unsigned choice = random() % 4;
    if (choice < 2 || stored.empty()) {
      auto extent = this->store_->reserve_extent();
      if (!extent) extent = stored.begin()->first;
      this->pages_.fill(0, ++pattern);
      const TransferResult written = this->write(*extent, 0);
      ASSERT_EQ(written.error, 0) << written.detail;
      stored[*extent] = pattern;
      continue;
    }
    auto entry = stored.begin();
    std::advance(entry, random() % stored.size());
    if (choice == 2) {
      ASSERT_EQ(this->read(entry->first, 1).error, 0);
      ASSERT_TRUE(this->pages_.holds(1, entry->second)) << "step " << step;
    } else {
      this->store_->release_extent(entry->first);
      stored.erase(entry);
    }
  }
}

TYPED_TEST_P(SpillStoreConformance, EndsWithTransfersInFlight) {
  const auto extents = this->reserve_all();
  for (std::size_t i = 0; i < TestFixture::kDepth; ++i)
    this->store_->submit({Direction::kWrite, extents[i], this->pages_[i], kExtentBytes, i});
  this->store_.reset();  // must wait for the kernel: the pages are unmapped next
}

REGISTER_TYPED_TEST_SUITE_P(SpillStoreConformance, BringsBackWhatWasWritten,
                            CarriesManyTransfersAtOnce, RefusesWithAReasonWhenFull,
                            MakesRoomByRelease, WakeEndsTheNextWait, WakeEndsAWaitFromAnotherThread,
                            ReapEndsWithNothingInFlight, CountsBytesAndExtents,
                            ReservesOnManyThreadsWhileBytesMove, KeepsEveryExtentThroughARandomWalk,
                            EndsWithTransfersInFlight);

}  // namespace spillway::swap
