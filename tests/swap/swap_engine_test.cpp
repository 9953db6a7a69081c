#include "spillway/swap/swap_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "pages_cases.h"
#include "spillway/memory/host_pages.h"
#include "spillway/swap/spill_store_factory.h"
#include "store/ram/factory.h"
#include "store/verifying/factory.h"
#include "support/fault_store.h"
#include "support/forwarding_store.h"
#include "support/residency_orders.h"
#include "support/sanitized.h"
#include "support/temporary_directory.h"

namespace spillway::swap {
namespace {

/// What a store does with its reads, and has done.
struct Reads {
  std::atomic<bool> fail{false};
  std::atomic<bool> fail_first{false};  ///< The first page that is read, each time.
  std::atomic<int> finished{0};
  std::atomic<int> failed{0};
  std::atomic<bool> fail_at_write{false};  ///< What begins now fails, once a write begins.
  std::atomic<int> doomed{0};              ///< Reads that were begun so.
  std::atomic<bool> hold_writes{false};
  std::atomic<int> started_writes{0};
};

/// A store in memory that counts what is read and fails at it when told, and that holds writes up.
class ReadsStore final : public ForwardingStore {
 public:
  ReadsStore(std::unique_ptr<SpillStore> child, Reads& reads)
      : ForwardingStore(std::move(child)), reads_(reads) {}

 private:
  void do_submit(const Transfer& transfer) override {
    if (transfer.direction == Direction::kWrite) {
      ++reads_.started_writes;
      reads_.fail_at_write = false;
    } else if (reads_.fail_at_write) {
      doomed_.insert(transfer.tag);
      ++reads_.doomed;
    }
    child_->submit(transfer);
  }
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override {
    child_->reap(held_, std::min(timeout, std::chrono::milliseconds(1)));
    for (auto held = held_.begin(); held != held_.end();) {
      const bool waits =
          held->transfer.direction == Direction::kWrite ? reads_.hold_writes : reads_.fail_at_write;
      if (!waits) results.push_back(*held);
      held = waits ? held + 1 : held_.erase(held);
    }
    for (TransferResult& result : results) {
      if (result.transfer.direction != Direction::kRead) continue;
      ++reads_.finished;
      if (reads_.fail_first && !first_) first_ = result.transfer.tag;
      const bool is_doomed = doomed_.erase(result.transfer.tag) > 0;
      if (!reads_.fail && !is_doomed && first_ != result.transfer.tag) continue;
      ++reads_.failed;
      result.error = EIO, result.detail = "reading: damaged";
    }
  }

  Reads& reads_;
  std::optional<std::uint64_t> first_;
  std::set<std::uint64_t> doomed_;
  std::vector<TransferResult> held_;
};

/// Notes where the engine wants its pages, in the order in which they are written.
class TiersStore final : public ForwardingStore {
 public:
  TiersStore(std::unique_ptr<SpillStore> child, std::vector<StoreTier>& tiers)
      : ForwardingStore(std::move(child)), tiers_(tiers) {}

 private:
  std::optional<ExtentId> do_reserve_extent(StoreTier tier) override {
    tiers_.push_back(tier);
    return child_->reserve_extent(tier);
  }

  std::vector<StoreTier>& tiers_;
};

class SwapEngineTest : public PagesTest {
 protected:
  std::unique_ptr<SwapEngine> engine(std::size_t pages, std::size_t store_pages = 4096,
                                     Duration patience = SwapEngineOptions().patience) {
    SwapEngineOptions options;
    options.budget = page_size() * pages;
    options.arena_size = 8_GiB;
    options.patience = patience;
    return make_engine(options, ram_store(store_pages), clock_);
  }

  std::unique_ptr<SwapEngine> engine(std::size_t pages, Reads& reads,
                                     std::uint32_t depth = SpillStoreOptions().queue_depth) {
    SwapEngineOptions options;
    options.budget = page_size() * pages;
    options.arena_size = 8_GiB;
    return make_engine(options, std::make_unique<ReadsStore>(ram_store(64, depth), reads), clock_);
  }

  static RangeUse use(const SwapEngine& engine, const void* memory, bool writes) {
    RangeUse found = engine.find(memory);
    found.writes = writes;
    return found;
  }

  SteadyClock clock_;
};

TEST_P(SwapEngineTest, KeepsContentsOfRangesThatTogetherExceedTheBudget) {
  auto swap = engine(8);
  std::vector<std::byte*> ranges;
  for (std::size_t i = 0; i < 10; ++i) {
    ranges.push_back(swap->allocate(page_size() * 3, nullptr).address);
    for (std::size_t page = 0; page < 3; ++page) word(ranges.back(), page) = 100 * i + page;
  }
  for (std::size_t i = 0; i < 10; ++i) {
    for (std::size_t page = 0; page < 3; ++page) EXPECT_EQ(word(ranges[i], page), 100 * i + page);
  }
  const SwapStatistics counts = swap->statistics();
  EXPECT_LE(counts.counted_peak, page_size() * 8);
  EXPECT_EQ(counts.live_peak, page_size() * 30);
  EXPECT_GT(counts.spilled, Bytes());
  EXPECT_EQ(counts.faults > 0, reports_accesses());
  for (std::byte* memory : ranges) swap->release(swap->find(memory).storage);
}

TEST_P(SwapEngineTest, TellsThePeakSinceItWasLastAsked) {
  auto swap = engine(8);
  std::byte* const staying = swap->allocate(page_size() * 2, nullptr).address;
  std::byte* const going = swap->allocate(page_size() * 3, nullptr).address;
  swap->release(swap->find(going).storage);
  EXPECT_EQ(swap->take_peak(), page_size() * 5);
  EXPECT_EQ(swap->take_peak(), page_size() * 2) << "what is there now";
  std::byte* const late = swap->allocate(page_size(), nullptr).address;
  EXPECT_EQ(swap->take_peak(), page_size() * 3);
  EXPECT_EQ(swap->statistics().counted_peak, page_size() * 5);
  for (std::byte* memory : {staying, late}) swap->release(swap->find(memory).storage);
}

TEST_P(SwapEngineTest, BringsPinnedRangesInWithoutFaults) {
  auto swap = engine(4);
  std::byte* first = swap->allocate(page_size() * 3, nullptr).address;
  for (std::size_t page = 0; page < 3; ++page) word(first, page) = page + 1;
  std::byte* second = swap->allocate(page_size() * 3, nullptr).address;
  for (std::size_t page = 0; page < 3; ++page) word(second, page) = page + 10;
  const std::uint64_t faults = swap->statistics().faults;
  for (int round = 0; round < 3; ++round) {
    for (std::byte* memory : {first, second}) {
      PinSet pins;
      const RangeUse uses[] = {use(*swap, memory, true)};
      swap->pin(pins, uses);
      for (std::size_t page = 0; page < 3; ++page) word(memory, page) += 1;
      swap->unpin(pins);
    }
  }
  EXPECT_EQ(swap->statistics().faults, faults);
  EXPECT_EQ(word(first, 2), 3u + 3u);
  EXPECT_EQ(word(second, 2), 12u + 3u);
}

TEST_P(SwapEngineTest, TellsWhichRangesAPinHadToWaitFor) {
  auto swap = engine(4);
  std::byte* large = swap->allocate(page_size() * 3, nullptr).address;
  std::byte* small = swap->allocate(page_size(), nullptr).address;
  const RangeUse uses[] = {use(*swap, small, false), use(*swap, large, false)};
  for (std::size_t page = 0; page < 3; ++page) word(large, page) = page;
  PinSet pins;
  swap->pin(pins, {uses, 1});
  std::byte* other =
      swap->allocate(page_size() * 3, nullptr).address;  // All of the large one leaves.
  swap->release(swap->find(other).storage);
  MissingPages missing;
  swap->pin(pins, uses, &missing);
  EXPECT_EQ(missing, (MissingPages{0, 3}));
  swap->unpin(pins);
  missing.clear();
  swap->pin(pins, uses, &missing);
  EXPECT_EQ(missing, MissingPages{});
  swap->unpin(pins);
}

TEST_P(SwapEngineTest, LetsRangesThatWereOnlyReadLeaveWithoutAWrite) {
  auto swap = engine(4);
  std::byte* first = swap->allocate(page_size() * 3, nullptr).address;
  std::byte* second = swap->allocate(page_size() * 3, nullptr).address;
  const auto read = [&](std::byte* memory) {
    PinSet pins;
    const RangeUse uses[] = {use(*swap, memory, false)};
    swap->pin(pins, uses);
    swap->unpin(pins);
  };
  for (int round = 0; round < 2; ++round) read(first), read(second);
  const Bytes spilled = swap->statistics().spilled;
  for (int round = 0; round < 4; ++round) read(first), read(second);
  EXPECT_EQ(swap->statistics().spilled, spilled);
  EXPECT_GT(swap->statistics().left_clean, Bytes());
}

TEST_P(SwapEngineTest, WritesAgainWhatWasFetchedWithoutItsCopy) {
  for (const OnFetch copy : {OnFetch::kKeepStoreCopy, OnFetch::kDropStoreCopy}) {
    auto swap = engine(4);
    const auto first = swap->allocate(page_size() * 3, nullptr);
    for (std::size_t page = 0; page < 3; ++page) word(first.address, page) = page + 1;
    const auto second = swap->allocate(page_size() * 3, nullptr);
    swap->release(second.storage);
    set_next_use(*swap, RangePart(first.storage), 1000);
    fetch(*swap, RangePart(first.storage), copy);
    while (swap->statistics().fetched < page_size() * 2) std::this_thread::yield();
    write_out(*swap, RangePart(first.storage), 3);
    while (swap->statistics().spilled + swap->statistics().left_clean < page_size() * 5)
      std::this_thread::yield();
    EXPECT_EQ(swap->statistics().left_clean,
              copy == OnFetch::kKeepStoreCopy ? page_size() * 2 : Bytes());
    for (std::size_t page = 0; page < 3; ++page) EXPECT_EQ(word(first.address, page), page + 1);
  }
}

TEST_P(SwapEngineTest, RefusesWhatRunningOperatorsLeaveNoRoomFor) {
  auto swap = engine(4);
  std::byte* held = swap->allocate(page_size() * 3, nullptr).address;
  PinSet pins;
  const RangeUse uses[] = {use(*swap, held, true)};
  swap->pin(pins, uses);
  EXPECT_THROW(swap->allocate(page_size() * 2, &pins), NoRoomError);
  EXPECT_THROW(swap->allocate(page_size() * 5, nullptr), NoRoomError);
  swap->unpin(pins);
  EXPECT_NE(swap->allocate(page_size() * 2, nullptr).address, nullptr);
}

/// Each fits alone, together they do not: one goes first, and nobody is refused.
TEST_P(SwapEngineTest, ServesOperatorsOfSeveralThreadsOneAfterTheOther) {
  SPILLWAY_NEEDS_REPORTS();
  auto swap = engine(8);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::byte* const input = swap->allocate(page_size() * 3, nullptr).address;
      for (std::size_t page = 0; page < 3; ++page) word(input, page) = seed * 100 + page;
      for (int round = 0; round < tries(60, 15); ++round) {
        PinSet pins;
        const RangeUse uses[] = {use(*swap, input, true)};
        swap->pin(pins, uses);
        std::byte* const output = swap->allocate(page_size() * 4, &pins).address;
        for (std::size_t page = 0; page < 3; ++page)
          word(output, page + 1) = ++word(input, page) + seed;
        swap->unpin(pins);
        for (std::size_t page = 0; page < 3; ++page)
          if (word(output, page + 1) != word(input, page) + seed) ++wrong;
        swap->release(swap->find(output).storage);
      }
      for (std::size_t page = 0; page < 3; ++page)
        if (word(input, page) != seed * 100 + page + tries(60u, 15u)) ++wrong;
      swap->release(swap->find(input).storage);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(swap->statistics().counted_peak, page_size() * 8);
}

/// A running operator waits for a thread that waits for the operator's pages.
TEST_P(SwapEngineTest, TakesFromAnOperatorThatWaitsForTheThreadThatWaits) {
  SPILLWAY_NEEDS_REPORTS();
  auto swap = engine(6, /*store_pages=*/64, std::chrono::milliseconds(50));
  std::byte* const input = swap->allocate(page_size() * 5, nullptr).address;
  for (std::size_t page = 0; page < 5; ++page) word(input, page) = page + 1;
  PinSet pins;
  const RangeUse uses[] = {use(*swap, input, true)};
  swap->pin(pins, uses);
  std::thread helper([&] {
    PinSet own;
    std::byte* const scratch = swap->allocate(page_size() * 4, &own).address;
    word(scratch, 3) = 1;
    swap->unpin(own);
    swap->release(swap->find(scratch).storage);
  });
  helper.join();
  for (std::size_t page = 0; page < 5; ++page) EXPECT_EQ(word(input, page), page + 1);
  swap->unpin(pins);
  EXPECT_LE(swap->statistics().counted_peak, page_size() * 6);
}

TEST_P(SwapEngineTest, NeverTakesWhatTheKernelUses) {
  SPILLWAY_NEEDS_REPORTS();
  auto swap = engine(6, /*store_pages=*/64, std::chrono::milliseconds(1));
  std::byte* const buffer = swap->allocate(page_size() * 3, nullptr).address;
  PinSet kernel(Hold::kKernel);
  const RangeUse uses[] = {use(*swap, buffer, true)};
  swap->pin(kernel, uses);
  std::thread trainer([&] {
    for (std::size_t round = 0; round < 8; ++round) {
      PinSet pins;
      swap->page_through(pins);
      std::byte* const first = swap->allocate(page_size() * 2, &pins).address;
      std::byte* const second = swap->allocate(page_size() * 3, &pins).address;
      for (std::size_t page = 0; page < 2; ++page) word(first, page) = round;
      for (std::size_t page = 0; page < 3; ++page) word(second, page) = round;
      for (std::size_t page = 0; page < 2; ++page) EXPECT_EQ(word(first, page), round);
      swap->unpin(pins);
      swap->release(swap->find(first).storage);
      swap->release(swap->find(second).storage);
    }
  });
  trainer.join();
  const std::uint64_t faults = swap->statistics().faults;
  for (std::size_t page = 0; page < 3; ++page) word(buffer, page) = page;
  EXPECT_EQ(swap->statistics().faults, faults);
  swap->unpin(kernel);
}

TEST_P(SwapEngineTest, WaitsForNobodyWhoHoldsUntilTheMemoryIsFreed) {
  auto swap = engine(6);
  PinSet until_freed(Hold::kUntilFreed);
  const RangeUse kept[] = {use(*swap, swap->allocate(page_size() * 4, nullptr).address, true)};
  swap->pin(until_freed, kept);
  PinSet pins;
  EXPECT_THROW(swap->allocate(page_size() * 3, &pins), NoRoomError);
  EXPECT_NE(swap->allocate(page_size() * 2, &pins).address, nullptr);
  swap->unpin(pins);
  swap->unpin(until_freed);
  EXPECT_NE(swap->allocate(page_size() * 3, &pins).address, nullptr);
}

TEST_P(SwapEngineTest, PagesThroughAnOperatorThatDoesNotFitWhenTold) {
  SPILLWAY_NEEDS_REPORTS();
  auto swap = engine(4);
  PinSet pins;
  swap->page_through(pins);
  std::vector<std::byte*> parts;
  for (std::uint64_t i = 0; i < 4; ++i) {
    parts.push_back(swap->allocate(page_size() * 3, &pins).address);
    for (std::size_t page = 0; page < 3; ++page) word(parts.back(), page) = 7 * i + page;
  }
  for (std::uint64_t i = 0; i < 4; ++i) {
    for (std::size_t page = 0; page < 3; ++page) EXPECT_EQ(word(parts[i], page), 7 * i + page);
  }
  EXPECT_LE(swap->statistics().counted_peak, page_size() * 4);
}

/// In the order of their arrival each page of such a sweep left right before it was touched again.
TEST_P(SwapEngineTest, SweepsOverALittleMoreThanTheBudgetWithoutMovingAllOfIt) {
  SPILLWAY_NEEDS_REPORTS();
  constexpr std::size_t kPages = 48;
  constexpr std::uint64_t kSweeps = 12;
  auto swap = engine(40);
  PinSet pins;
  swap->page_through(pins);
  std::byte* const memory = swap->allocate_unfilled(page_size() * kPages, &pins).address;
  for (std::size_t page = 0; page < kPages; ++page) word(memory, page) = page;
  const Bytes before = swap->statistics().fetched;
  for (std::uint64_t sweep = 0; sweep < kSweeps; ++sweep)
    for (std::size_t page = 0; page < kPages; ++page) EXPECT_EQ(word(memory, page), page);
  const Bytes fetched = swap->statistics().fetched - before;
  EXPECT_LT(fetched, page_size() * kPages * kSweeps * 6 / 10);
  EXPECT_LE(swap->statistics().counted_peak, page_size() * 40);
}

/// Whoever else runs meanwhile is refused as ever, and its pages stay.
TEST_P(SwapEngineTest, PagesThroughNoOtherOperatorThanTheOneThatWasToldTo) {
  SPILLWAY_NEEDS_REPORTS();
  auto swap = engine(12);
  PinSet large;
  swap->page_through(large);
  std::byte* const swept = swap->allocate_unfilled(page_size() * 16, &large).address;
  PinSet small;
  std::byte* const kept = swap->allocate(page_size() * 3, &small).address;
  const std::uint64_t faults = swap->statistics().faults;
  for (std::size_t page = 0; page < 16; ++page) word(swept, page) = page;
  const std::uint64_t own_faults = swap->statistics().faults - faults;
  for (std::size_t page = 0; page < 3; ++page) word(kept, page) = page;
  EXPECT_EQ(swap->statistics().faults, faults + own_faults);
  swap->unpin(large);
  EXPECT_THROW(swap->allocate(page_size() * 10, &small), NoRoomError);
  for (std::size_t page = 0; page < 16; ++page) EXPECT_EQ(word(swept, page), page);
}

/// An unaligned access needs both pages at once. When each arrival pushed the other page out again,
/// a copy out of a range larger than the budget never ended.
TEST_P(SwapEngineTest, ServesAccessesThatSpanTwoPagesOfARangeLargerThanTheBudget) {
  SPILLWAY_NEEDS_REPORTS();
  auto swap = engine(4);
  std::vector<std::byte*> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(swap->allocate(page_size() * 3, nullptr).address);
  for (std::byte* part : parts) {
    const StorageId range = swap->find(part).storage;
    set_next_use(*swap, range, kNeverUsed - 10);  // The first to go, by what was predicted.
    std::byte* border = part + page_bytes() - 4;
    for (int round = 0; round < 3; ++round) {
      std::uint64_t value = 0;
      std::memcpy(&value, border, sizeof value);
      value += 3;
      std::memcpy(border, &value, sizeof value);
    }
  }
  EXPECT_LE(swap->statistics().counted_peak, page_size() * 4);
}

RangeUse part(const SwapEngine& engine, std::byte* memory, std::size_t page, std::size_t count,
              bool writes) {
  RangeUse found = engine.find(memory + page * page_bytes(), page_size() * count);
  found.writes = writes;
  return found;
}

TEST_P(SwapEngineTest, FindsThePagesThatBytesLieIn) {
  auto swap = engine(8);
  std::byte* memory = swap->allocate(page_size() * 5, nullptr).address;
  const auto found = [&](std::size_t offset, std::size_t size) {
    const RangeUse use = swap->find(memory + offset, Bytes(size));
    return std::pair(use.first, use.touched());
  };
  using Pages = std::pair<std::uint32_t, std::uint32_t>;
  EXPECT_EQ(found(0, 1), Pages(0, 1));
  EXPECT_EQ(found(0, page_bytes()), Pages(0, 1));
  EXPECT_EQ(found(0, page_bytes() + 1), Pages(0, 2));
  EXPECT_EQ(found(page_bytes() - 1, 2), Pages(0, 2));
  EXPECT_EQ(found(3 * page_bytes() + 100, page_bytes()), Pages(3, 2));
  EXPECT_EQ(found(4 * page_bytes(), 100 * page_bytes()), Pages(4, 1));  // Not beyond the storage.
  EXPECT_EQ(found(0, 5 * page_bytes()), Pages(0, 5));
  EXPECT_TRUE(swap->find(memory, page_size() * 5).is_whole());
  EXPECT_FALSE(swap->find(memory, Bytes()).storage.is_some());
  EXPECT_FALSE(swap->find(this, Bytes(8)).storage.is_some());
}

TEST_P(SwapEngineTest, UsesARangeLargerThanTheBudgetPartByPart) {
  auto swap = engine(4);
  constexpr std::size_t kPages = 13;
  std::byte* memory = swap->allocate_unfilled(page_size() * kPages).address;
  for (std::uint64_t round = 0; round < 4; ++round) {
    for (std::size_t page = 0; page < kPages; page += 2) {
      PinSet pins;
      const RangeUse uses[] = {part(*swap, memory, page, 2, true)};
      swap->pin(pins, uses);
      for (std::size_t i = page; i < std::min(page + 2, kPages); ++i) {
        if (round > 0) {
          EXPECT_EQ(word(memory, i), 100 * (round - 1) + i);
        }
        word(memory, i) = 100 * round + i;
      }
      swap->unpin(pins);
    }
  }
  const SwapStatistics counts = swap->statistics();
  EXPECT_EQ(counts.faults, 0u);
  EXPECT_LE(counts.counted_peak, page_size() * 4);
  for (std::size_t page = 0; page < kPages; ++page) EXPECT_EQ(word(memory, page), 300 + page);
  swap->release(swap->find(memory).storage);
  EXPECT_EQ(swap->statistics().live, Bytes());
}

TEST_P(SwapEngineTest, FillsALargeRangeByFaultsWhenNobodyAnnouncesThem) {
  SPILLWAY_NEEDS_REPORTS();
  auto swap = engine(4);
  std::byte* memory = swap->allocate_unfilled(page_size() * 9).address;
  for (std::size_t page = 0; page < 9; ++page) word(memory, page) = 7 * page;
  for (std::size_t page = 0; page < 9; ++page) EXPECT_EQ(word(memory, page), 7 * page);
  EXPECT_LE(swap->statistics().counted_peak, page_size() * 4);
  EXPECT_GT(swap->statistics().fault_wait, Duration(0));
}

TEST_P(SwapEngineTest, HoldsOnlyThePagesOfAPart) {
  auto swap = engine(6);
  std::byte* large = swap->allocate(page_size() * 6, nullptr).address;
  for (std::size_t page = 0; page < 6; ++page) word(large, page) = page;
  PinSet pins;
  const RangeUse uses[] = {part(*swap, large, 2, 2, false)};
  swap->pin(pins, uses);
  EXPECT_THROW(swap->allocate(page_size() * 5, &pins), NoRoomError);
  try {
    swap->allocate(page_size() * 5, &pins);
    FAIL() << "there is no room for five pages";
  } catch (const NoRoomError& error) {
    EXPECT_EQ(error.held, page_size() * 2);
  }
  std::byte* other = swap->allocate(page_size() * 4, &pins).address;
  const std::uint64_t faults = swap->statistics().faults;
  EXPECT_EQ(word(large, 2), 2u);
  EXPECT_EQ(word(large, 3), 3u);
  word(other, 3) = 5;
  EXPECT_EQ(swap->statistics().faults, faults);
  swap->unpin(pins);
  swap->release(swap->find(other).storage);
  for (std::size_t page = 0; page < 6; ++page) EXPECT_EQ(word(large, page), page);
}

TEST_P(SwapEngineTest, WritingAPartMakesOnlyItsPagesDirty) {
  auto swap = engine(4);
  std::byte* first = swap->allocate(page_size() * 3, nullptr).address;
  std::byte* second = swap->allocate(page_size() * 3, nullptr).address;
  const auto hold = [&](const RangeUse& use) {
    PinSet pins;
    swap->pin(pins, {&use, 1});
    if (use.writes) word(use.pages == 3 ? first : second, use.first) = 11;
    swap->unpin(pins);
    finish_operators();  // What the device still uses would stay, and another page leave.
  };
  const auto sweep = [&] { hold(use(*swap, second, false)), hold(use(*swap, first, false)); };
  for (int round = 0; round < 3; ++round) sweep();
  const Bytes spilled = swap->statistics().spilled;
  hold(part(*swap, first, 1, 1, true));
  for (int round = 0; round < 3; ++round) sweep();
  EXPECT_EQ(swap->statistics().spilled, spilled + page_size());
  EXPECT_EQ(word(first, 1), 11u);
}

TEST_P(SwapEngineTest, LetsThePartGoFirstThatIsNeededLast) {
  auto swap = engine(10);
  std::byte* memory = swap->allocate(page_size() * 6, nullptr).address;
  const StorageId range = swap->find(memory).storage;
  for (std::size_t page = 0; page < 6; ++page) word(memory, page) = page;
  finish_operators();          // What the device still uses would stay.
  for (int i = 0; i < 2; ++i)  // Pages that have just come would be spared.
    swap->release(swap->allocate(page_size() * 4, nullptr).storage);
  advance(*swap, 100);
  set_next_use(*swap, RangePart(range, 0, 2), 150);
  set_next_use(*swap, RangePart(range, 2, 2), 500);
  set_next_use(*swap, RangePart(range, 4, 2), 101);
  std::byte* other = swap->allocate(page_size() * 6, nullptr).address;
  PinSet pins;
  const RangeUse uses[] = {part(*swap, memory, 0, 2, false), part(*swap, memory, 4, 2, false)};
  swap->pin(pins, uses);
  EXPECT_EQ(swap->statistics().fetched, Bytes());
  swap->unpin(pins);
  swap->release(swap->find(other).storage);
  EXPECT_EQ(word(memory, 2), 2u);
}

TEST_P(SwapEngineTest, ReportsAFullStoreAndLosesNothing) {
  auto swap = engine(4, /*store_pages=*/2);
  std::byte* first = swap->allocate(page_size() * 3, nullptr).address;
  for (std::size_t page = 0; page < 3; ++page) word(first, page) = page + 1;
  EXPECT_THROW(swap->allocate(page_size() * 4, nullptr), StoreError);
  for (std::size_t page = 0; page < 3; ++page) EXPECT_EQ(word(first, page), page + 1);
}

TEST_P(SwapEngineTest, TellsOfAPageThatCannotBeReadAndTriesItAgainLater) {
  Reads reads;
  auto swap = engine(4, reads);
  std::vector<std::byte*> ranges;
  for (std::size_t i = 0; i < 3; ++i) {
    ranges.push_back(swap->allocate(page_size() * 3, nullptr).address);
    word(ranges.back(), 2) = i + 1;
  }
  const auto pin = [&](std::size_t i) {
    PinSet pins;
    const RangeUse wanted = use(*swap, ranges[i], false);
    swap->pin(pins, {&wanted, 1});
    EXPECT_EQ(word(ranges[i], 2), i + 1);
  };
  reads.fail = true;
  EXPECT_THROW(pin(0), UnreadableError);
  reads.fail = false;
  EXPECT_NO_THROW(pin(1));  // No concern of this one.
  EXPECT_NO_THROW(pin(0));
}

TEST_P(SwapEngineTest, ReadsAPageAgainWhereAReadFailsThatRanBefore) {
  Reads reads;
  auto swap = engine(12, reads);
  const auto first = swap->allocate(page_size() * 3, nullptr);
  const auto second = swap->allocate(page_size() * 3, nullptr);
  for (std::size_t page = 0; page < 3; ++page) word(first.address, page) = page + 1;
  for (std::size_t page = 0; page < 3; ++page) word(second.address, page) = page + 1;
  finish_operators();
  write_out(*swap, RangePart(first.storage), 3);
  while (swap->statistics().spilled < page_size() * 3) std::this_thread::yield();
  reads.fail_at_write = true;
  fetch(*swap, RangePart(first.storage));
  while (reads.doomed < 3) std::this_thread::yield();
  // The write is begun once this waits for what is being read.
  ResidencyOrders orders;
  orders.write_outs = {{RangePart(second.storage), 3, {}}};
  PinSet pins;
  const RangeUse wanted = use(*swap, first.address, false);
  swap->pin(pins, {&wanted, 1}, nullptr, &orders);
  for (std::size_t page = 0; page < 3; ++page) EXPECT_EQ(word(first.address, page), page + 1);
  EXPECT_EQ(reads.failed, 3);
  swap->unpin(pins);
}

/// Each try takes a disk seconds: as many of them as there are pages would be a hang.
TEST_P(SwapEngineTest, TriesAPageOnceMoreThatCannotBeRead) {
  Reads reads;
  auto swap = engine(12, reads);
  const auto made = swap->allocate(page_size() * 6, nullptr);
  for (std::size_t page = 0; page < 6; ++page) word(made.address, page) = page + 1;
  finish_operators();
  write_out(*swap, RangePart(made.storage), 6);
  while (swap->statistics().spilled < page_size() * 6) std::this_thread::yield();
  reads.fail_first = true;
  fetch(*swap, RangePart(made.storage));
  PinSet pins;
  const RangeUse wanted = use(*swap, made.address, false);
  EXPECT_THROW(swap->pin(pins, {&wanted, 1}), UnreadableError);
  EXPECT_LE(reads.failed, 3);
}

TEST_P(SwapEngineTest, DropsAFetchThatComesTooLate) {
  for (const bool is_late : {false, true}) {
    Reads reads;
    auto swap = engine(6, reads);
    std::vector<SwapEngine::Allocation> ranges;
    for (std::uint32_t i = 0; i < 4; ++i) {
      ranges.push_back(swap->allocate(page_size() * 3, nullptr));
      // The first two are the ones to go.
      const auto all = RangePart(ranges.back().storage, 0, 3);
      set_next_use(*swap, all, i < 2 ? 1000 - i : 2);
    }
    const auto first = RangePart(ranges[0].storage, 0, 3);
    set_next_use(*swap, first, 5);
    fetch(*swap, first);  // There is no room yet.
    if (is_late) advance(*swap, 6);
    swap->release(ranges[2].storage);
    swap->release(ranges[3].storage);
    PinSet pins;
    const RangeUse second = use(*swap, ranges[1].address, false);
    swap->pin(pins, {&second, 1});
    swap->unpin(pins);
    swap.reset();
    EXPECT_EQ(reads.finished, is_late ? 3 : 6);
  }
}

TEST_P(SwapEngineTest, WritesOutAsManyPagesAsAreToBeOut) {
  auto swap = engine(8);
  const auto range = swap->allocate(page_size() * 4, nullptr);
  for (std::size_t page = 0; page < 4; ++page) word(range.address, page) = page + 1;
  finish_operators();
  write_out(*swap, RangePart(range.storage), 2);
  while (swap->statistics().spilled < page_size() * 2) std::this_thread::yield();
  write_out(*swap, RangePart(range.storage), 3);  // Two of them are out.
  while (swap->statistics().spilled < page_size() * 3) std::this_thread::yield();
  const std::uint64_t faults = swap->statistics().faults;
  EXPECT_EQ(word(range.address, 0), 1U);
  EXPECT_EQ(swap->statistics().faults, faults);
  for (std::size_t page = 1; page < 4; ++page) EXPECT_EQ(word(range.address, page), page + 1);
  EXPECT_EQ(swap->statistics().faults, faults + (reports_accesses() ? 3 : 0));
  EXPECT_EQ(swap->statistics().spilled, page_size() * 3);
}

TEST_P(SwapEngineTest, SaysWhichPagesGoPastHostMemory) {
  std::vector<StoreTier> tiers;
  SwapEngineOptions options;
  options.budget = page_size() * 8;
  options.arena_size = 8_GiB;
  auto swap = make_engine(options, std::make_unique<TiersStore>(ram_store(64), tiers), clock_);
  const auto out = [&](StorageId storage, std::uint32_t pages, std::optional<std::uint32_t> far) {
    finish_operators();
    const Bytes before = swap->statistics().spilled;
    write_out(*swap, RangePart(storage), pages, far);
    while (swap->statistics().spilled < before + page_size() * pages) std::this_thread::yield();
  };
  const auto planned = swap->allocate(page_size() * 4, nullptr);
  const auto unplanned = swap->allocate(page_size() * 2, nullptr);
  for (std::size_t page = 0; page < 4; ++page) word(planned.address, page) = page + 1;
  for (std::size_t page = 0; page < 2; ++page) word(unplanned.address, page) = page + 1;
  out(planned.storage, 4, 1);  // The last pages leave first.
  out(unplanned.storage, 2, std::nullopt);
  for (std::size_t page = 0; page < 4; ++page) word(planned.address, page) = page + 1;
  out(planned.storage, 4, 4);
  for (std::size_t page = 0; page < 4; ++page) EXPECT_EQ(word(planned.address, page), page + 1);
  swap.reset();
  using enum StoreTier;
  EXPECT_EQ(tiers, (std::vector{kHost, kHost, kHost, kFar, kAny, kAny, kFar, kFar, kFar, kFar}));
}

TEST_P(SwapEngineTest, KeepsContentsBehindALittleHostMemory) {
  TemporaryDirectory directory;
  SpillStoreOptions store;
  store.directories = {{directory.path(), Bytes(64 * kExtentBytes)}};
  store.host_tier = Bytes(8 * kExtentBytes);
  store.device = running.device;
  store.verify = true;
  SwapEngineOptions options;
  options.budget = page_size() * 6;
  options.arena_size = 8_GiB;
  auto swap = make_engine(options, make_spill_store(store).store, clock_);
  std::vector<SwapEngine::Allocation> ranges;
  for (std::size_t i = 0; i < 12; ++i) ranges.push_back(swap->allocate(page_size() * 3, nullptr));
  std::mt19937 random(7);
  std::vector<std::uint64_t> held(ranges.size());
  for (std::uint64_t step = 1; step <= 150; ++step) {
    const std::size_t i = random() % ranges.size();
    PinSet pins;
    const RangeUse uses[] = {use(*swap, ranges[i].address, true)};
    swap->pin(pins, uses);
    for (std::size_t page = 0; page < 3; ++page) {
      if (held[i] != 0) {
        ASSERT_EQ(word(ranges[i].address, page), held[i] + page);
      }
      word(ranges[i].address, page) = 100 * step + page;
    }
    held[i] = 100 * step;
    swap->unpin(pins);
    if (random() % 3 == 0) write_out(*swap, RangePart(ranges[i].storage), 3, random() % 4);
  }
  const StoreReport report = swap->statistics().store;
  EXPECT_GT(report.host.written, Bytes());
  EXPECT_GT(report.written_to_disks(), Bytes());
  EXPECT_LE(report.host.peak, report.host.capacity);
  // A quarter stages what goes past it.
  EXPECT_EQ(report.host.capacity, Bytes((running.device ? 6 : 8) * kExtentBytes));
  for (const auto& range : ranges) swap->release(range.storage);
}

TEST_P(SwapEngineTest, AFetchKeepsPagesThatAreStillOnTheirWayOut) {
  for (const bool is_fetched : {false, true}) {
    Reads reads;
    auto swap = engine(8, reads);
    const auto range = swap->allocate(page_size() * 3, nullptr);
    for (std::size_t page = 0; page < 3; ++page) word(range.address, page) = page + 1;
    finish_operators();
    reads.hold_writes = true;
    write_out(*swap, RangePart(range.storage), 3);
    while (reads.started_writes < 3) std::this_thread::yield();
    if (is_fetched) fetch(*swap, RangePart(range.storage));
    reads.hold_writes = false;
    while (swap->statistics().spilled < page_size() * 3) std::this_thread::yield();
    PinSet pins;
    const RangeUse uses[] = {use(*swap, range.address, false)};
    swap->pin(pins, uses);
    EXPECT_EQ(swap->statistics().fetched, is_fetched ? Bytes() : page_size() * 3);
    for (std::size_t page = 0; page < 3; ++page) EXPECT_EQ(word(range.address, page), page + 1);
    swap->unpin(pins);
  }
}

TEST_P(SwapEngineTest, CountsTheWaitsOfEachThread) {
  Reads reads;
  auto swap = engine(4, reads);
  const Duration before = SwapEngine::waited_by_this_thread();
  const auto first = swap->allocate(page_size() * 3, nullptr);
  EXPECT_EQ(SwapEngine::waited_by_this_thread(), before) << "mapping pages is work";
  reads.hold_writes = true;
  std::thread disk([&] {
    while (reads.started_writes < 2) std::this_thread::yield();
    reads.hold_writes = false;
    EXPECT_EQ(SwapEngine::waited_by_this_thread(), Duration(0));
  });
  const auto second = swap->allocate(page_size() * 3, nullptr);
  disk.join();
  EXPECT_GT(SwapEngine::waited_by_this_thread(), before);
  const Duration waited = SwapEngine::waited_by_this_thread();
  swap->release(first.storage);
  swap->release(second.storage);
  EXPECT_EQ(SwapEngine::waited_by_this_thread(), waited);
}

TEST_P(SwapEngineTest, AFetchLeavesTheReserve) {
  Reads reads;
  auto swap = engine(6, reads);
  const auto fetched = swap->allocate(page_size() * 3, nullptr);
  const auto demanded = swap->allocate(page_size(), nullptr);
  for (const auto& range : {fetched, demanded}) write_out(*swap, RangePart(range.storage), 3);
  while (swap->statistics().spilled < page_size() * 4) std::this_thread::yield();
  set_next_use(*swap, RangePart(fetched.storage), 1000);
  set_fetch_reserve(*swap, 4);
  fetch(*swap, RangePart(fetched.storage));
  while (reads.finished < 2) std::this_thread::yield();
  PinSet pins;
  const RangeUse uses[] = {use(*swap, demanded.address, false)};
  swap->pin(pins, uses);  // Comes into the reserve; the fetch had its turn then, and took nothing.
  EXPECT_EQ(reads.finished, 3);
  set_fetch_reserve(*swap, 0);
  while (reads.finished < 4) std::this_thread::yield();
  swap->unpin(pins);
}

TEST_P(SwapEngineTest, TakesSmallBlocksOutOfTheBudget) {
  auto swap = engine(4);
  std::byte* large = swap->allocate(page_size() * 4, nullptr).address;
  word(large, 3) = 42;
  swap->account_small(page_size(), nullptr);
  EXPECT_LE(swap->statistics().counted, page_size() * 4);
  EXPECT_GT(swap->statistics().spilled, Bytes());
  EXPECT_EQ(word(large, 3), 42u);
  swap->release_small(page_size());
}

TEST_P(SwapEngineTest, SmallBlocksLeaveTheFramesThatAnAccessNeeds) {
  auto swap = engine(4);
  std::byte* large = swap->allocate(page_size() * 4, nullptr).address;
  for (std::size_t page = 0; page < 4; ++page) word(large, page) = 40 + page;
  swap->account_small(page_size() * 2, nullptr);
  EXPECT_THROW(swap->account_small(Bytes(1), nullptr), NoRoomError);
  for (std::size_t page = 0; page < 4; ++page) EXPECT_EQ(word(large, page), 40 + page);
  swap->release_small(page_size() * 2);
}

/// What one thread of the random test holds: its memory, and the words that must be in it.
using Model = std::map<std::byte*, std::vector<std::uint64_t>>;

class RandomUser {
 public:
  RandomUser(SwapEngine& swap, unsigned seed) : swap_(swap), random_(seed) {}

  void run(int actions) {
    for (int i = 0; i < actions; ++i) {
      const unsigned action = random_() % 10;
      if (model_.empty() || (model_.size() < 8 && action < 3)) {
        allocate();
      } else {
        act(action, std::next(model_.begin(), static_cast<int>(random_() % model_.size())));
      }
    }
    while (!model_.empty()) release(model_.begin());
  }

 private:
  void allocate() {
    const std::size_t pages = 1 + random_() % 4;
    std::byte* memory = random_() % 3 == 0 ? swap_.allocate_unfilled(page_size() * pages).address
                                           : swap_.allocate(page_size() * pages, nullptr).address;
    auto& expected = model_[memory];
    for (std::size_t page = 0; page < pages; ++page) {
      expected.push_back(random_());
      word(memory, page) = expected.back();
    }
  }

  /// Holds some of the pages, twice if it happens so, and touches one of them.
  void use_part(std::byte* memory, std::vector<std::uint64_t>& expected) {
    PinSet pins;
    std::vector<RangeUse> uses;
    for (unsigned i = 0; i < 1 + random_() % 2; ++i) {
      const std::size_t first = random_() % expected.size();
      const std::size_t count = 1 + random_() % (expected.size() - first);
      uses.push_back(swap_.find(memory + first * page_bytes(), page_size() * count));
      uses.back().writes = random_() % 2 == 0;
    }
    swap_.pin(pins, uses);
    const RangeUse& use = uses[random_() % uses.size()];
    const std::size_t page = use.first + random_() % use.touched();
    EXPECT_EQ(word(memory, page), expected[page]);
    if (use.writes) word(memory, page) = expected[page] = random_();
    swap_.unpin(pins);
  }

  void advise(std::byte* memory, std::size_t pages) {
    const StorageId range = swap_.find(memory).storage;
    const auto first = static_cast<std::uint32_t>(random_() % pages);
    const RangePart part(range, first, 1 + random_() % 3);
    switch (random_() % 4) {
      case 0:
        fetch(swap_, random_() % 2 == 0 ? RangePart(range) : part,
              random_() % 2 == 0 ? OnFetch::kKeepStoreCopy : OnFetch::kDropStoreCopy);
        break;
      case 1:
        write_out(swap_, random_() % 2 == 0 ? RangePart(range) : part, 1 + random_() % 4);
        break;
      case 2: set_next_use(swap_, part, random_() % 1000); break;
      default: set_next_use(swap_, range, random_() % 1000); break;
    }
  }

  void act(unsigned action, Model::iterator entry) {
    auto& [memory, expected] = *entry;
    const std::size_t page = random_() % expected.size();
    if (action < 3) {
      use_part(memory, expected);
    } else if (action < 5) {
      PinSet pins;
      RangeUse use = swap_.find(memory);
      use.writes = random_() % 2 == 0;
      swap_.pin(pins, {&use, 1});
      EXPECT_EQ(word(memory, page), expected[page]);
      if (use.writes) word(memory, page) = expected[page] = random_();
      swap_.unpin(pins);
    } else if (action < 7) {
      EXPECT_EQ(word(memory, page), expected[page]);
    } else if (action < 8) {
      word(memory, page) = expected[page] = random_();
    } else if (action < 9) {
      advise(memory, expected.size());
    } else {
      release(entry);
    }
  }

  void release(Model::iterator entry) {
    auto& [memory, expected] = *entry;
    for (std::size_t page = 0; page < expected.size(); ++page)
      EXPECT_EQ(word(memory, page), expected[page]);
    swap_.release(swap_.find(memory).storage);
    model_.erase(entry);
  }

  SwapEngine& swap_;
  std::mt19937 random_;
  Model model_;
};

#ifdef __SANITIZE_THREAD__
constexpr int kRandomUses = 100;  // Some hundred times slower there.
#else
constexpr int kRandomUses = tries(500, 300);
#endif

TEST_P(SwapEngineTest, EqualsAPlainMapUnderRandomUseFromManyThreads) {
  auto swap = engine(24);
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&swap, seed] { RandomUser(*swap, seed).run(kRandomUses); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(swap->statistics().counted_peak, page_size() * 24);
  EXPECT_EQ(swap->statistics().live, Bytes());
}

TEST_P(SwapEngineTest, AFetchThatFailsIsNotTriedForEver) {
  Reads reads;
  reads.fail_first = true;
  auto swap = engine(32, reads, 1);
  const auto spilled = swap->allocate(page_size() * 20, nullptr);
  swap->release(swap->allocate(page_size() * 32, nullptr).storage);
  fetch(*swap, RangePart(spilled.storage, 0, 1));
  while (reads.failed == 0) std::this_thread::yield();
  // Each of these goes through the thread that would try again.
  for (std::uint32_t page = 1; page < 20; ++page) {
    PinSet pins;
    RangeUse touched = use(*swap, spilled.address, false);
    touched.first = page, touched.count = 1;
    swap->pin(pins, {&touched, 1});
  }
  EXPECT_EQ(reads.failed, 1);
}

/// Touches pages, spilled to a disk that flips a bit in all that it returns.
void touch_what_cannot_come_back(memory::MapperKind kind) {
  auto notifier = std::make_shared<Notifier>();
  FaultOptions faults;
  faults.flipping_reads = 1.0;
  auto store = make_verifying_store(
      std::make_unique<FaultStore>(make_ram_store(Bytes(64 * kExtentBytes), 4, notifier), notifier,
                                   faults),
      "it");
  SwapEngineOptions options;
  options.budget = page_size() * 4;
  options.arena_size = 1_GiB;
  const SteadyClock clock;
  SwapEngine swap(options, memory::make_host_pages(kind), std::move(store), clock);
  std::byte* const range = swap.allocate(page_size() * 4, nullptr).address;
  for (std::size_t page = 0; page < 4; ++page) word(range, page) = page;
  const auto other = swap.allocate(page_size() * 4, nullptr);
  swap.release(other.storage);
  for (std::size_t page = 0; page < 4; ++page)
    if (word(range, page) != page) std::_Exit(4);
  std::_Exit(5);
}

TEST_P(SwapEngineTest, AnAccessThatCannotBeServedEndsTheProcessInsteadOfHanging) {
  SPILLWAY_NEEDS_REPORTS();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(touch_what_cannot_come_back(*GetParam()), testing::KilledBySignal(SIGBUS),
              "the program touches a tensor that cannot come back from disk: .*it");
}

/// Touches a spilled page while nothing can leave for it: the store is full, and all frames hold
/// what is nowhere else.
void touch_what_finds_no_room(memory::MapperKind kind) {
  SwapEngineOptions options;
  options.budget = page_size() * 4;
  options.arena_size = 1_GiB;
  options.fault_patience = std::chrono::milliseconds(1);
  const SteadyClock clock;
  SwapEngine swap(options, memory::make_host_pages(kind), ram_store(2), clock);
  std::byte* const spilled = swap.allocate(page_size() * 2, nullptr).address;
  for (std::size_t page = 0; page < 2; ++page) word(spilled, page) = 7;
  std::byte* const other = swap.allocate(page_size() * 4, nullptr).address;
  for (std::size_t page = 0; page < 4; ++page) word(other, page) = 8;
  std::_Exit(word(spilled, 1) == 7 ? 5 : 6);
}

TEST_P(SwapEngineTest, AnAccessThatFindsNoRoomEndsTheProcessWithTheStoresReason) {
  SPILLWAY_NEEDS_REPORTS();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(touch_what_finds_no_room(*GetParam()), testing::KilledBySignal(SIGBUS),
              "the program touches a tensor that cannot come back from disk: "
              "No space left in RAM");
}

/// Touches a spilled page while a device may be using all frames.
void touch_what_the_kernel_leaves_no_room_for(memory::MapperKind kind) {
  SwapEngineOptions options;
  options.budget = page_size() * 4;
  options.arena_size = 1_GiB;
  options.fault_patience = std::chrono::milliseconds(1);
  const SteadyClock clock;
  SwapEngine swap(options, memory::make_host_pages(kind), ram_store(64), clock);
  std::byte* const spilled = swap.allocate(page_size(), nullptr).address;
  const RangeUse used = swap.find(swap.allocate(page_size() * 4, nullptr).address);
  PinSet held(Hold::kKernel);
  swap.pin(held, {&used, 1});
  std::_Exit(word(spilled, 0) == 7 ? 5 : 6);
}

TEST_P(SwapEngineTest, AnAccessThatTheKernelLeavesNoRoomForEndsTheProcess) {
  SPILLWAY_NEEDS_REPORTS();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(touch_what_the_kernel_leaves_no_room_for(*GetParam()),
              testing::KilledBySignal(SIGBUS), "direct I/O uses all of the budget of 8.00 MiB");
}

void touch_what_was_freed(memory::MapperKind kind) {
  SwapEngineOptions options;
  options.budget = page_size() * 4;
  options.arena_size = 1_GiB;
  const SteadyClock clock;
  SwapEngine swap(options, memory::make_host_pages(kind),
                  make_ram_store(Bytes(64 * kExtentBytes), 4, std::make_shared<Notifier>()), clock);
  const auto range = swap.allocate(page_size() * 2, nullptr);
  swap.release(range.storage);
  std::_Exit(word(range.address, 1) == 0 ? 5 : 6);
}

TEST_P(SwapEngineTest, TouchingFreedMemoryEndsTheProcessAndSaysSo) {
  SPILLWAY_NEEDS_REPORTS();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const bool traps =
      GetParam() == memory::MapperKind::kSignal || GetParam() == memory::MapperKind::kCopy;
  if (traps && kIsSanitized) GTEST_SKIP() << "the sanitizer takes the signal for itself";
  EXPECT_EXIT(touch_what_was_freed(*GetParam()), testing::KilledBySignal(SIGSEGV),
              "after it was freed");
}

INSTANTIATE_TEST_SUITE_P(Pages, SwapEngineTest, testing::ValuesIn(all_pages()), pages_case);

}  // namespace
}  // namespace spillway::swap
