// The host works on pages of a device where they lie while they are out.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "pages_cases.h"
#include "spillway/base/error.h"
#include "spillway/device/device.h"
#include "support/fault_store.h"
#include "support/residency_orders.h"

namespace spillway::swap {
namespace {

/// A device's storage as words, one at the start of each page.
class SwapEngineHostWorkTest : public PagesTest {
 protected:
  void SetUp() override {
    PagesTest::SetUp();
    if (!running.device && !IsSkipped()) GTEST_SKIP() << "the host has its pages where they are";
  }

  /// `slabs`: of host memory; a quarter of them, one at least, stages what goes past it.
  std::unique_ptr<SwapEngine> engine(std::size_t pages, std::uint32_t slabs,
                                     const FaultOptions& faults = {}) {
    SwapEngineOptions options;
    options.budget = page_size() * pages;
    options.arena_size = 1_GiB;
    options.patience = std::chrono::seconds(2);
    const auto notifier = std::make_shared<Notifier>();
    auto lower = std::make_unique<FaultStore>(
        make_ram_store(Bytes(kExtentBytes * 256), 16, notifier), notifier, faults);
    return make_engine(
        options, host_memory_before(std::move(lower), slabs, notifier, running.device), clock_);
  }

  static SwapEngine::Allocation make(SwapEngine& swap, std::size_t pages, std::uint64_t first) {
    const auto made = swap.allocate(page_size() * pages, nullptr);
    for (std::size_t i = 0; i < pages; ++i) word(made.address, i) = first + i;
    return made;
  }
  static HostUse use_of(SwapEngine& swap, std::byte* memory, bool writes = true) {
    HostUse use{swap.find(memory)};
    use.use.writes = writes;
    return use;
  }
  static std::uint64_t read(const std::byte* memory) {
    std::uint64_t value = 0;
    std::memcpy(&value, memory, sizeof value);
    return value;
  }
  static void write(std::byte* memory, std::uint64_t value) {
    std::memcpy(memory, &value, sizeof value);
  }
  /// Adds to each page's word on the host. False where the engine does not let it.
  static bool add_on_host(SwapEngine& swap, std::byte* memory, std::uint64_t more) {
    HostHold hold;
    const HostUse use = use_of(swap, memory);
    if (!swap.hold_on_host(hold, {&use, 1})) return false;
    for (std::byte* const page : hold.pages(0)) write(page, read(page) + more);
    return true;
  }

  SteadyClock clock_;
};

TEST_P(SwapEngineHostWorkTest, TheDeviceReadsWhatTheHostHasWritten) {
  auto swap = engine(8, 16);
  const auto made = make(*swap, 3, 10);
  ASSERT_TRUE(add_on_host(*swap, made.address, 100));
  EXPECT_EQ(swap->resident(), Bytes());
  ASSERT_TRUE(add_on_host(*swap, made.address, 1000));
  EXPECT_EQ(swap->statistics().spilled, page_size() * 3) << "once";
  EXPECT_EQ(swap->statistics().fetched, Bytes());
  EXPECT_EQ(swap->statistics().worked_on_host, page_size() * 6);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(word(made.address, i), 1110 + i);
  word(made.address, 1) = 7;
  ASSERT_TRUE(add_on_host(*swap, made.address, 1));
  EXPECT_EQ(word(made.address, 1), 8U);
  EXPECT_EQ(word(made.address, 2), 1113U);
  EXPECT_EQ(swap->statistics().spilled, page_size() * 4) << "only what the device had written";
}

TEST_P(SwapEngineHostWorkTest, WhatLiesOnADiskComesIntoHostMemoryAndNotToTheDevice) {
  auto swap = engine(8, 16);
  const auto made = make(*swap, 3, 10);
  finish_operators();
  write_out(*swap, RangePart(made.storage), 3, 3);
  while (swap->resident() > Bytes()) std::this_thread::yield();
  ASSERT_EQ(swap->statistics().store.host.in_use, Bytes());
  ASSERT_TRUE(add_on_host(*swap, made.address, 5));
  EXPECT_EQ(swap->statistics().fetched, Bytes());
  EXPECT_EQ(swap->statistics().store.host.in_use, Bytes(kExtentBytes * 3));
  EXPECT_EQ(swap->resident(), Bytes());
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(word(made.address, i), 15 + i);
}

TEST_P(SwapEngineHostWorkTest, WhoNeedsAPageOnTheDeviceWaitsForTheHost) {
  auto swap = engine(8, 16);
  const auto made = make(*swap, 2, 10);
  std::atomic<bool> is_done{false};
  std::thread trainer;
  {
    HostHold hold;
    const HostUse use = use_of(*swap, made.address);
    ASSERT_TRUE(swap->hold_on_host(hold, {&use, 1}));
    trainer = std::thread([&] {
      EXPECT_EQ(word(made.address, 0), 42U);
      EXPECT_TRUE(is_done);
    });
    while (swap->statistics().fetch_wait == Duration(0)) std::this_thread::yield();
    write(hold.pages(0)[0], 42);
    is_done = true;
  }
  trainer.join();
}

TEST_P(SwapEngineHostWorkTest, WhatTheHostFillsIsNotCopiedOut) {
  auto swap = engine(8, 16);
  const auto fresh = swap->allocate_unfilled(page_size() * 2);
  HostUse use = use_of(*swap, fresh.address);
  use.fills = true;
  {
    HostHold hold;
    ASSERT_TRUE(swap->hold_on_host(hold, {&use, 1}));
    for (std::byte* const page : hold.pages(0)) write(page, 9);
  }
  EXPECT_EQ(swap->statistics().spilled, Bytes());
  EXPECT_EQ(word(fresh.address, 1), 9U);
}

TEST_P(SwapEngineHostWorkTest, WhatEndsMeanwhileGivesItsPlacesBackWhenTheHostIsDone) {
  auto swap = engine(8, 16);
  const auto made = make(*swap, 2, 10);
  HostHold hold;
  const HostUse use = use_of(*swap, made.address);
  ASSERT_TRUE(swap->hold_on_host(hold, {&use, 1}));
  finish_operators();
  swap->release(made.storage);
  EXPECT_EQ(swap->statistics().store.host.in_use, Bytes(kExtentBytes * 2));
  write(hold.pages(0)[1], 1);
  swap->let_go_on_host(hold);
  EXPECT_EQ(swap->statistics().store.host.in_use, Bytes());
}

TEST_P(SwapEngineHostWorkTest, IsRefusedWhereADeviceHoldsAPageForGoodOrHostMemoryIsTooSmall) {
  auto swap = engine(16, 12);  // Nine slabs for pages.
  const auto made = make(*swap, 2, 10);
  const auto large = make(*swap, 10, 20);
  {
    PinSet for_good(Hold::kUntilFreed);
    const RangeUse use = swap->find(made.address);
    swap->pin(for_good, {&use, 1});
    EXPECT_FALSE(add_on_host(*swap, made.address, 1));
  }
  EXPECT_FALSE(add_on_host(*swap, large.address, 1));
  EXPECT_TRUE(add_on_host(*swap, made.address, 1));
  EXPECT_EQ(word(made.address, 1), 12U);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(word(large.address, i), 20 + i);
}

TEST_P(SwapEngineHostWorkTest, AFailingDiskIsTold) {
  auto swap = engine(8, 16, {.failing = 1, .spares_writes = true});
  const auto made = make(*swap, 2, 10);
  finish_operators();
  write_out(*swap, RangePart(made.storage), 2, 2);
  while (swap->resident() > Bytes()) std::this_thread::yield();
  EXPECT_THROW(add_on_host(*swap, made.address, 1), UnreadableError);
  while (swap->statistics().store.host.in_use > Bytes()) std::this_thread::yield();
}

/// Pages that had come before stayed in host memory for good.
TEST_P(SwapEngineHostWorkTest, WhatCannotBeRecomputedMeanwhileLeavesNothingHeld) {
  auto swap = engine(20, 12);  // Nine slabs for pages.
  const auto kept = make(*swap, 7, 10);
  const auto value = make(*swap, 1, 20);
  const auto used = make(*swap, 1, 30);
  const auto large = make(*swap, 8, 40);
  finish_operators();
  PinSet pins;
  const RangeUse operands[] = {swap->find(used.address), swap->find(large.address)};
  swap->pin(pins, operands);
  std::thread host([&] {
    HostHold hold;
    const HostUse uses[] = {use_of(*swap, kept.address), use_of(*swap, value.address),
                            use_of(*swap, used.address)};
    EXPECT_THROW(swap->hold_on_host(hold, uses), RecomputeError);
  });
  // It waits for the operator on the last one.
  while (swap->resident() > page_size() * 9) std::this_thread::yield();
  ASSERT_TRUE(swap->drop(value.storage));
  swap->give_up(swap->wait_for_wanted(), "no room for its inputs");
  host.join();
  swap->unpin(pins);
  EXPECT_TRUE(add_on_host(*swap, large.address, 1));
}

/// Device and host by turns, in any order, with less memory than there are pages in each tier.
TEST_P(SwapEngineHostWorkTest, DeviceAndHostByTurnsLoseNothing) {
  auto swap = engine(6, 12);
  std::minstd_rand random(7);
  std::vector<std::byte*> storages;
  std::vector<std::uint64_t> expected;
  for (std::uint64_t i = 0; i < 12; ++i) {
    storages.push_back(make(*swap, 2, 100 * i).address);
    expected.push_back(100 * i);
  }
  for (int turn = 0; turn < 150; ++turn) {
    const std::size_t i = random() % storages.size();
    if (random() % 2 == 0) {
      for (std::size_t page = 0; page < 2; ++page) word(storages[i], page) += 1;
    } else {
      ASSERT_TRUE(add_on_host(*swap, storages[i], 1));
    }
    ++expected[i];
  }
  for (std::size_t i = 0; i < storages.size(); ++i)
    for (std::size_t page = 0; page < 2; ++page)
      EXPECT_EQ(word(storages[i], page), expected[i] + page);
  EXPECT_GT(swap->statistics().store.host.demoted, Bytes());
}

INSTANTIATE_TEST_SUITE_P(Pages, SwapEngineHostWorkTest, testing::ValuesIn(all_pages()), pages_case);

}  // namespace
}  // namespace spillway::swap
