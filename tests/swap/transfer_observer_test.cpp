#include "spillway/swap/transfer_observer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <thread>
#include <vector>

#include "spillway/memory/host_pages.h"
#include "store/ram/factory.h"
#include "support/best_mapper.h"
#include "support/forwarding_store.h"
#include "support/residency_orders.h"

namespace spillway::swap {
namespace {

using memory::kPageBytes;
using memory::kPageSize;

/// A store in memory whose first write and first read fail.
class FailsFirstStore final : public ForwardingStore {
 public:
  explicit FailsFirstStore(std::unique_ptr<SpillStore> child) : ForwardingStore(std::move(child)) {}

 private:
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override {
    child_->reap(results, timeout);
    for (TransferResult& result : results)
      if (ended_[static_cast<std::size_t>(result.transfer.direction)]++ == 0)
        result.error = EIO, result.detail = "broken";
  }

  int ended_[2] = {0, 0};
};

/// Runs ahead by ten seconds whenever it is told to.
class JumpingClock final : public Clock {
 public:
  TimePoint now() const override {
    return steady_.now() + std::chrono::seconds(10) * jumps_.load();
  }
  void jump() { ++jumps_; }

 private:
  SteadyClock steady_;
  std::atomic<int> jumps_{0};
};

/// Stands still while its first transfer is under way, as in a process that is stopped.
class StoppedStore final : public ForwardingStore {
 public:
  StoppedStore(std::unique_ptr<SpillStore> child, JumpingClock& clock)
      : ForwardingStore(std::move(child)), clock_(clock) {}

 private:
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override {
    const bool is_first = !has_stopped_ && child_->in_flight() > 0;
    child_->reap(results, timeout);
    if (is_first) clock_.jump();
    has_stopped_ = has_stopped_ || is_first;
  }

  JumpingClock& clock_;
  bool has_stopped_ = false;
};

/// Called by the I/O thread only; looked at when that has ended.
class Notebook final : public TransferObserver {
 public:
  struct Kept {
    Transfer transfer;
    StorageId storage;
    bool is_awaited = false;
    TimePoint begin, end;
    int error = -1;
  };

  void begin_transfer(const Transfer& transfer, StorageId range, bool is_awaited,
                      TimePoint at) override {
    EXPECT_TRUE(under_way_.try_emplace(transfer.tag, all.size()).second) << "tags are unique";
    all.push_back({transfer, range, is_awaited, at, {}});
  }
  void end_transfers(std::span<const TransferResult> results, TimePoint at,
                     Bytes resident_now) override {
    for (const TransferResult& result : results) {
      const auto found = under_way_.find(result.transfer.tag);
      ASSERT_NE(found, under_way_.end());
      Kept& kept = all[found->second];
      kept.end = at;
      kept.error = result.error;
      EXPECT_EQ(kept.transfer.direction, result.transfer.direction);
      under_way_.erase(found);
    }
    resident = resident_now;
  }

  void stood_still(TimePoint from, TimePoint until) override {
    for (const auto& [tag, place] : under_way_) EXPECT_LE(all[place].begin, from);
    stops.push_back(until - from);
  }

  std::size_t under_way() const { return under_way_.size(); }
  Bytes bytes(Direction direction) const {
    Bytes sum;
    for (const Kept& kept : all)
      if (kept.transfer.direction == direction && kept.error == 0) sum += Bytes(kept.transfer.size);
    return sum;
  }
  int failures(Direction direction) const {
    int count = 0;
    for (const Kept& kept : all)
      count += kept.transfer.direction == direction && kept.error != 0 ? 1 : 0;
    return count;
  }

  std::vector<Kept> all;
  std::vector<Duration> stops;
  Bytes resident;

 private:
  std::map<std::uint64_t, std::size_t> under_way_;
};

class TransferObserverTest : public testing::Test {
 protected:
  static std::unique_ptr<SpillStore> ram_store() {
    return make_ram_store(kPageSize * 64, 4, std::make_shared<Notifier>());
  }
  std::unique_ptr<SwapEngine> engine(std::size_t pages, std::unique_ptr<SpillStore> store) {
    SwapEngineOptions options;
    options.budget = kPageSize * pages;
    options.arena_size = 8_GiB;
    options.observers = {&seen_};
    return std::make_unique<SwapEngine>(options, memory::make_host_pages(best_mapper()),
                                        std::move(store), clock_);
  }

  JumpingClock clock_;
  Notebook seen_;
};

TEST_F(TransferObserverTest, SeesBeginAndEndOfEachTransferAlsoOfFailedOnes) {
  auto swap = engine(8, std::make_unique<FailsFirstStore>(ram_store()));
  const auto spilled = swap->allocate(kPageSize * 4, nullptr);
  const auto other = swap->allocate(kPageSize * 8, nullptr);
  swap->release(other.storage);
  const RangeUse use = swap->find(spilled.address);
  {
    PinSet pins;
    EXPECT_THROW(swap->pin(pins, {&use, 1}), IoError);
    swap->pin(pins, {&use, 1});
  }
  EXPECT_EQ(swap->resident(), kPageSize * 4);
  const SwapStatistics counted = swap->statistics();
  swap.reset();
  EXPECT_EQ(seen_.under_way(), 0u);
  EXPECT_EQ(seen_.failures(Direction::kWrite), 1);
  EXPECT_EQ(seen_.failures(Direction::kRead), 1);
  EXPECT_EQ(seen_.bytes(Direction::kWrite), counted.spilled);
  EXPECT_EQ(seen_.bytes(Direction::kRead), counted.fetched);
  EXPECT_EQ(counted.fetched, kPageSize * 4);
  EXPECT_EQ(seen_.resident, kPageSize * 4);
  for (const Notebook::Kept& kept : seen_.all) {
    EXPECT_EQ(kept.storage, spilled.storage);
    EXPECT_LE(kept.begin, kept.end);
    EXPECT_EQ(kept.is_awaited, kept.transfer.direction == Direction::kRead);
  }
}

TEST_F(TransferObserverTest, TellsReadsAheadFromThoseThatSomebodyWaitsFor) {
  auto swap = engine(8, ram_store());
  const auto ahead = swap->allocate(kPageSize * 2, nullptr);
  const auto awaited = swap->allocate(kPageSize * 3, nullptr);
  swap->release(swap->allocate(kPageSize * 8, nullptr).storage);
  fetch(*swap, ahead.storage);
  while (swap->statistics().fetched < kPageSize * 2) std::this_thread::yield();
  const RangeUse use = swap->find(awaited.address);
  PinSet pins;
  swap->pin(pins, {&use, 1});
  swap->unpin(pins);
  swap.reset();
  int reads = 0;
  for (const Notebook::Kept& kept : seen_.all) {
    if (kept.transfer.direction != Direction::kRead) continue;
    ++reads;
    EXPECT_EQ(kept.is_awaited, kept.storage == awaited.storage);
  }
  EXPECT_EQ(reads, 5);
}

TEST_F(TransferObserverTest, IsToldThatTheProcessStoodStill) {
  auto swap = engine(8, std::make_unique<StoppedStore>(ram_store(), clock_));
  const auto spilled = swap->allocate(kPageSize * 4, nullptr);
  const auto other = swap->allocate(kPageSize * 8, nullptr);
  swap->release(other.storage);
  swap->release(spilled.storage);
  swap.reset();
  ASSERT_EQ(seen_.stops.size(), 1u);
  EXPECT_GE(seen_.stops.front(), std::chrono::seconds(10));
  EXPECT_GT(seen_.bytes(Direction::kWrite), Bytes());
}

}  // namespace
}  // namespace spillway::swap
