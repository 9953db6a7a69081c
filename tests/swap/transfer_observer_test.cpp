#include "spillway/swap/transfer_observer.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <thread>
#include <vector>

#include "spillway/memory/frame_mapper.h"
#include "store/ram/factory.h"

namespace spillway::swap {
namespace {

using memory::kPageBytes;
using memory::kPageSize;

memory::MapperKind best_mapper() {
  for (const memory::MapperProbe& probe : memory::probe_mappers())
    if (probe.is_viable) return probe.kind;
  throw std::runtime_error("no mapper works here");
}

/// A store in memory whose first write and first read fail.
class FailsFirstStore final : public SpillStore {
 public:
  explicit FailsFirstStore(std::unique_ptr<SpillStore> child)
      : SpillStore(child->queue_depth()), child_(std::move(child)) {}

 private:
  std::optional<ExtentId> do_reserve_extent() override { return child_->reserve_extent(); }
  void do_release_extent(ExtentId extent) override { child_->release_extent(extent); }
  void do_submit(const Transfer& transfer) override { child_->submit(transfer); }
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override {
    child_->reap(results, timeout);
    for (TransferResult& result : results)
      if (ended_[static_cast<std::size_t>(result.transfer.direction)]++ == 0)
        result.error = EIO, result.detail = "broken";
  }
  void do_wake() override { child_->wake(); }
  ExtentPlace do_locate(ExtentId extent) const override { return child_->locate(extent); }
  StoreReport do_report() const override { return child_->report(); }

  std::unique_ptr<SpillStore> child_;
  int ended_[2] = {0, 0};
};

/// Called by the I/O thread only; looked at when that has ended.
class Notebook final : public TransferObserver {
 public:
  struct Kept {
    Transfer transfer;
    RangeId range;
    bool is_awaited = false;
    TimePoint begin, end;
    int error = -1;
  };

  void begin_transfer(const Transfer& transfer, RangeId range, bool is_awaited,
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
  Bytes resident;

 private:
  std::map<std::uint64_t, std::size_t> under_way_;
};

class TransferObserverTest : public testing::Test {
 protected:
  std::unique_ptr<SwapEngine> engine(std::size_t pages, bool fails) {
    SwapEngineOptions options;
    options.budget = kPageSize * pages;
    options.arena_size = 8_GiB;
    options.observers = {&seen_};
    auto store = make_ram_store(kPageSize * 64, 4, std::make_shared<Doorbell>());
    if (fails) store = std::make_unique<FailsFirstStore>(std::move(store));
    return std::make_unique<SwapEngine>(options, memory::make_frame_mapper(best_mapper()),
                                        std::move(store), clock_);
  }

  SteadyClock clock_;
  Notebook seen_;
};

TEST_F(TransferObserverTest, SeesBeginAndEndOfEachTransferAlsoOfFailedOnes) {
  auto swap = engine(8, /*fails=*/true);
  const auto spilled = swap->allocate(kPageSize * 4, nullptr);
  const auto other = swap->allocate(kPageSize * 8, nullptr);
  swap->release(other.range);
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
    EXPECT_EQ(kept.range, spilled.range);
    EXPECT_LE(kept.begin, kept.end);
    EXPECT_EQ(kept.is_awaited, kept.transfer.direction == Direction::kRead);
  }
}

TEST_F(TransferObserverTest, TellsReadsAheadFromThoseThatSomebodyWaitsFor) {
  auto swap = engine(8, /*fails=*/false);
  const auto ahead = swap->allocate(kPageSize * 2, nullptr);
  const auto awaited = swap->allocate(kPageSize * 3, nullptr);
  swap->release(swap->allocate(kPageSize * 8, nullptr).range);
  swap->fetch(ahead.range);
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
    EXPECT_EQ(kept.is_awaited, kept.range == awaited.range);
  }
  EXPECT_EQ(reads, 5);
}

}  // namespace
}  // namespace spillway::swap
