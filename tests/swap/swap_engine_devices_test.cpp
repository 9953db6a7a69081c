// What an engine owes a device: pages stay until its work has ended, memory goes back to it on
// demand, and each device has an engine of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "pages_cases.h"
#include "spillway/base/error.h"
#include "spillway/device/cpu.h"
#include "support/best_mapper.h"
#include "support/forwarding_store.h"
#include "support/residency_orders.h"
#include "support/shadow_device.h"
#include "support/shadow_pages.h"

namespace spillway::swap {
namespace {

/// Keeps the ends of writes to itself while it is told to.
class HeldWritesStore final : public ForwardingStore {
 public:
  HeldWritesStore(std::unique_ptr<SpillStore> child, std::atomic<bool>& holds,
                  std::atomic<int>& started)
      : ForwardingStore(std::move(child)), holds_(holds), started_(started) {}

 private:
  void do_submit(const Transfer& transfer) override {
    child_->submit(transfer);
    ++started_;
  }
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override {
    child_->reap(held_, std::min(timeout, std::chrono::milliseconds(1)));
    if (holds_) return;
    results.insert(results.end(), held_.begin(), held_.end());
    held_.clear();
  }

  std::atomic<bool>& holds_;
  std::atomic<int>& started_;
  std::vector<TransferResult> held_;
};

class SwapEngineDevicesTest : public PagesTest {
 protected:
  void SetUp() override {
    PagesTest::SetUp();
    host_ = device::make_cpu_device();
    kernels_ = (running.device ? *running.device : *host_).make_queue("kernels");
  }
  void TearDown() override {
    kernels_.reset();
    scratch_ = {};
    PagesTest::TearDown();
  }

  std::unique_ptr<SwapEngine> engine(std::size_t pages,
                                     std::unique_ptr<SpillStore> store = ram_store(256),
                                     const SwapEngineOptions& chosen = {}) {
    SwapEngineOptions options = chosen;
    options.budget = page_size() * pages;
    options.arena_size = 1_GiB;
    return make_engine(options, std::move(store), clock_);
  }

  /// An operator on all of the storage at `memory`, whose kernel ends once `gate_` is open. It
  /// reads the first word, or leaves 42 there.
  device::Event use_late(SwapEngine& swap, std::byte* memory, bool writes = true) {
    PinSet pins;
    RangeUse use = swap.find(memory);
    use.writes = writes;
    swap.pin(pins, {&use, 1});
    const device::Event done = writes ? start_kernel(memory, 42) : start_reading_kernel(memory);
    swap.unpin(pins, nullptr, done);
    return done;
  }

  /// Starts a kernel that sets the first word of `memory` once `gate_` is open.
  device::Event start_kernel(std::byte* memory, std::uint64_t value) {
    value_ = value;
    wait_for_gate();
    const device::DeviceSpan from = device::host_span_of(value_);
    kernels_->copy({kernels_->device(), memory, from.size}, from);
    return kernels_->record();
  }
  /// One that copies the first word to memory of its own.
  device::Event start_reading_kernel(std::byte* memory) {
    scratch_ = (running.device ? *running.device : *host_).allocate(page_size());
    const Bytes size(sizeof value_);
    wait_for_gate();
    kernels_->copy(scratch_.span().first(size), {kernels_->device(), memory, size});
    return kernels_->record();
  }
  void wait_for_gate() {
    kernels_->run([this] {
      gate_.get_future().wait();
      return device::Outcome{};
    });
  }

  SteadyClock clock_;
  std::unique_ptr<device::Device> host_;
  std::unique_ptr<device::Queue> kernels_;
  device::DeviceMemory scratch_;
  std::promise<void> gate_;
  std::uint64_t value_ = 0;
};

TEST_P(SwapEngineDevicesTest, PagesStayUntilTheDeviceHasUsedThem) {
  auto swap = engine(8);
  const auto used = swap->allocate(page_size() * 3, nullptr);
  const auto other = swap->allocate(page_size(), nullptr);
  const device::Event done = use_late(*swap, used.address);
  write_out(*swap, RangePart(used.storage), 3);
  write_out(*swap, RangePart(other.storage), 1);
  // What is asked for first is written first.
  while (swap->statistics().spilled < page_size()) std::this_thread::yield();
  EXPECT_EQ(swap->statistics().spilled, page_size());
  gate_.set_value();
  EXPECT_EQ(done.wait().error, "");
  // And without a word more.
  while (swap->statistics().spilled < page_size() * 4) std::this_thread::yield();
  EXPECT_EQ(word(used.address, 0), 42U);
}

TEST_P(SwapEngineDevicesTest, WhatIsUsedAgainBeforeTheDeviceIsDoneDoesNotLeaveForAnOlderOrder) {
  auto swap = engine(8);
  const auto used = swap->allocate(page_size() * 3, nullptr);
  const auto other = swap->allocate(page_size(), nullptr);
  const device::Event done = use_late(*swap, used.address);
  write_out(*swap, RangePart(used.storage), 3);
  {
    PinSet pins;
    const RangeUse use = swap->find(used.address);
    swap->pin(pins, {&use, 1});
  }
  gate_.set_value();
  EXPECT_EQ(done.wait().error, "");
  write_out(*swap, RangePart(other.storage), 1);
  while (swap->statistics().spilled < page_size()) std::this_thread::yield();
  EXPECT_EQ(swap->statistics().spilled, page_size());
  EXPECT_EQ(swap->resident(), page_size() * 3);
}

/// One of a stream, of which nothing is told as long as the test says so.
class AskedMoment final : public device::EventState {
 public:
  struct Stream {
    std::atomic<bool> has_ended{false};
    std::string obstacle;
    std::atomic<int> questions{0};
  };
  AskedMoment(device::DeviceId device, Stream& stream) : EventState(device), stream_(stream) {}

  bool is_done() const override {
    ++stream_.questions;
    return stream_.has_ended;
  }
  device::Outcome wait() const override { return {}; }
  Duration time_since(const EventState& /*earlier*/) const override { return {}; }
  const void* line() const override { return &stream_; }
  std::string obstacle() const override { return stream_.has_ended ? "" : stream_.obstacle; }

 private:
  Stream& stream_;
};

TEST_P(SwapEngineDevicesTest, WhereThereIsRoomAnOperatorAsksTheDeviceSeldom) {
  constexpr int kOperators = 1000;
  AskedMoment::Stream stream;
  auto swap = engine(8);
  const auto used = swap->allocate(page_size(), nullptr);
  const device::Event moment(std::make_shared<AskedMoment>(kernels_->device(), stream));
  for (int i = 0; i < kOperators; ++i) {
    PinSet pins;
    const RangeUse use = swap->find(used.address);
    const ResidencyOrders orders;
    swap->pin(pins, {&use, 1}, nullptr, &orders);
    swap->unpin(pins, &orders, moment);
  }
  EXPECT_GE(stream.questions.load(), 1);
  EXPECT_LE(stream.questions.load(), kOperators / 16);
  stream.has_ended = true;
  swap->allocate(page_size() * 8, nullptr);
}

TEST_P(SwapEngineDevicesTest, RoomThatOnlyTheProgramCanMakeIsNotWaitedForForEver) {
  if (!running.device) GTEST_SKIP() << "the host takes what an operator holds, which notices";
  AskedMoment::Stream stream;
  stream.obstacle = "the stream is being captured";
  SwapEngineOptions options;
  options.patience = std::chrono::milliseconds(1);
  auto swap = engine(4, ram_store(256), options);
  const auto used = swap->allocate(page_size() * 3, nullptr);
  {
    PinSet pins;
    const RangeUse use = swap->find(used.address);
    swap->pin(pins, {&use, 1});
    swap->unpin(pins, nullptr,
                device::Event(std::make_shared<AskedMoment>(kernels_->device(), stream)));
  }
  EXPECT_THAT([&] { swap->allocate(page_size() * 2, nullptr); },
              testing::ThrowsMessage<NotToldError>(
                  testing::HasSubstr("uses the rest: the stream is being captured; give")));
  stream.has_ended = true;
  swap->allocate(page_size() * 2, nullptr);
}

TEST_P(SwapEngineDevicesTest, WhatHasEndedIsUsedAgainInItsLineBeforeTheDeviceIsDone) {
  if (!running.device) GTEST_SKIP() << "the host is done when an operator ends";
  AskedMoment::Stream stream;
  AskedMoment::Stream other;
  const auto moment = [&](AskedMoment::Stream& in) {
    return device::Event(std::make_shared<AskedMoment>(kernels_->device(), in));
  };
  auto swap = engine(4);
  const auto use_in = [&](std::byte* memory, AskedMoment::Stream& in) {
    PinSet pins;
    const RangeUse use = swap->find(memory);
    swap->pin(pins, {&use, 1});
    swap->unpin(pins, nullptr, moment(in));
    return use.storage;
  };
  const auto first = swap->allocate(page_size() * 3, nullptr);
  swap->release(use_in(first.address, stream));
  PinSet pins;
  EXPECT_FALSE(swap->reuse(page_size() * 3, pins, moment(other)));
  EXPECT_FALSE(swap->reuse(page_size() * 3, pins, {}));
  EXPECT_FALSE(swap->reuse(page_size(), pins, moment(stream))) << "there is a frame for it";
  const auto again = swap->reuse(page_size() * 3, pins, moment(stream));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->address, first.address);
  EXPECT_NE(again->storage, first.storage);
  EXPECT_EQ(swap->resident(), page_size() * 3);
  EXPECT_EQ(swap->statistics().live, page_size() * 3);
  swap->unpin(pins, nullptr, moment(stream));
  swap->release(again->storage);
  const auto part = swap->reuse(page_size() * 2, pins, moment(stream));
  ASSERT_TRUE(part) << "and now there is none";
  EXPECT_EQ(part->address, first.address);
  EXPECT_EQ(swap->resident(), page_size() * 3);
  swap->unpin(pins, nullptr, moment(stream));
  use_in(part->address, other);
  swap->release(part->storage);
  for (AskedMoment::Stream* const one : {&stream, &other})
    EXPECT_FALSE(swap->reuse(page_size() * 2, pins, moment(*one))) << "both use it";
  stream.has_ended = other.has_ended = true;
  const auto all = swap->allocate(page_size() * 4, nullptr);
  swap->release(all.storage);
  EXPECT_EQ(swap->statistics().live, Bytes());
  EXPECT_EQ(swap->statistics().spilled, Bytes());
}

TEST_P(SwapEngineDevicesTest, BeforeTheEndNothingIsMovedAheadOfNeed) {
  std::atomic<bool> holds{true};
  std::atomic<int> started{0};
  auto swap = engine(8, std::make_unique<HeldWritesStore>(ram_store(64), holds, started));
  const auto first = swap->allocate(page_size(), nullptr);
  const auto second = swap->allocate(page_size(), nullptr);
  word(second.address, 0) = 7;
  finish_operators();
  write_out(*swap, RangePart(first.storage), 1);
  while (started < 1) std::this_thread::yield();
  std::atomic<bool> has_stopped{false};
  std::thread end([&] {
    swap->stop_moving_ahead();
    has_stopped = true;
  });
  EXPECT_FALSE(has_stopped);
  holds = false;
  end.join();
  EXPECT_EQ(swap->statistics().spilled, page_size());
  write_out(*swap, RangePart(second.storage), 1);
  // What is needed comes all the same.
  const auto all = swap->allocate(page_size() * 8, nullptr);
  EXPECT_EQ(swap->statistics().spilled, page_size() * 2);
  swap->release(all.storage);
  EXPECT_EQ(word(second.address, 0), 7U);
}

TEST_P(SwapEngineDevicesTest, AReleasedStorageKeepsItsMemoryUntilTheDeviceHasUsedIt) {
  auto swap = engine(4);
  const auto used = swap->allocate(page_size() * 3, nullptr);
  const device::Event done = use_late(*swap, used.address);
  swap->release(used.storage);
  EXPECT_FALSE(swap->find(used.address).storage.is_some());
  EXPECT_EQ(swap->resident(), page_size() * 3);
  gate_.set_value();
  EXPECT_EQ(done.wait().error, "");
  const auto next = swap->allocate(page_size() * 4, nullptr);
  EXPECT_EQ(swap->resident(), page_size() * 4);
  swap->release(next.storage);
  EXPECT_EQ(swap->statistics().live, Bytes());
}

TEST_P(SwapEngineDevicesTest, AReleasedStorageOutlastsItsWriteWhileTheDeviceUsesIt) {
  std::atomic<bool> holds{true};
  std::atomic<int> started{0};
  auto swap = engine(4, std::make_unique<HeldWritesStore>(ram_store(64), holds, started));
  const auto used = swap->allocate(page_size(), nullptr);
  write_out(*swap, RangePart(used.storage), 1);
  while (started < 1) std::this_thread::yield();
  const device::Event done = use_late(*swap, used.address, /*writes=*/false);
  swap->release(used.storage);
  holds = false;
  while (swap->statistics().store.extents_in_use > Bytes()) std::this_thread::yield();
  EXPECT_EQ(swap->resident(), page_size());
  gate_.set_value();
  EXPECT_EQ(done.wait().error, "");
  swap->allocate(page_size() * 4, nullptr);
  EXPECT_EQ(swap->resident(), page_size() * 4);
}

TEST_P(SwapEngineDevicesTest, WhoWritesWhatIsCopiedOutWaitsWhereNobodyReportsWrites) {
  if (!running.device) GTEST_SKIP() << "the host writes at once, and its copy is dropped";
  std::atomic<bool> holds{true};
  std::atomic<int> started{0};
  auto swap = engine(4, std::make_unique<HeldWritesStore>(ram_store(64), holds, started));
  const auto used = swap->allocate(page_size(), nullptr);
  word(used.address, 0) = 7;
  finish_operators();
  write_out(*swap, RangePart(used.storage), 1);
  while (started < 1) std::this_thread::yield();
  EXPECT_EQ(word(used.address, 0), 7U) << "who reads does not wait";
  EXPECT_EQ(swap->statistics().fetch_wait, Duration(0));
  std::thread disk([&] {
    while (swap->statistics().fetch_wait == Duration(0)) std::this_thread::yield();
    holds = false;
  });
  word(used.address, 0) = 8;
  EXPECT_FALSE(holds);
  disk.join();
  EXPECT_EQ(word(used.address, 0), 8U);
}

TEST_P(SwapEngineDevicesTest, WhoNeedsRoomWaitsForTheDevice) {
  auto swap = engine(4);
  const auto used = swap->allocate(page_size() * 3, nullptr);
  use_late(*swap, used.address);
  std::thread device([&] {
    while (!swap->is_under_pressure()) std::this_thread::yield();
    gate_.set_value();
  });
  const auto next = swap->allocate(page_size() * 4, nullptr);
  device.join();
  EXPECT_EQ(swap->statistics().spilled, page_size() * 3);
  swap->release(next.storage);
  EXPECT_EQ(word(used.address, 0), 42U);
}

TEST_P(SwapEngineDevicesTest, WhatIsDroppedKeepsItsMemoryUntilTheDeviceHasUsedIt) {
  auto swap = engine(4);
  const auto value = swap->allocate(page_size() * 3, nullptr);
  const device::Event done = use_late(*swap, value.address);
  ASSERT_TRUE(swap->drop(value.storage));
  EXPECT_TRUE(swap->is_dropped(value.storage));
  std::atomic<bool> has_room{false};
  std::thread device([&] {
    while (swap->statistics().room_wait == Duration(0) && !has_room) std::this_thread::yield();
    EXPECT_FALSE(has_room);
    gate_.set_value();
  });
  const auto next = swap->allocate(page_size() * 3, nullptr);
  has_room = true;
  device.join();
  EXPECT_EQ(done.wait().error, "");
  EXPECT_EQ(swap->statistics().spilled, Bytes());
  EXPECT_EQ(swap->statistics().dropped, page_size() * 3);
  swap->release(next.storage);
}

TEST_P(SwapEngineDevicesTest, WhatIsDroppedAndWantedAtOnceKeepsItsBytes) {
  auto swap = engine(8);
  const auto value = swap->allocate(page_size() * 2, nullptr);
  const device::Event done = use_late(*swap, value.address);
  ASSERT_TRUE(swap->drop(value.storage));
  PinSet within;
  const auto made = swap->allocate(page_size() * 2, &within);
  ASSERT_TRUE(swap->adopt(value.storage, made.storage, within));
  gate_.set_value();
  EXPECT_EQ(done.wait().error, "");
  swap->unpin(within);
  swap->release(made.storage);
  EXPECT_EQ(word(value.address, 0), 42U);
}

TEST_P(SwapEngineDevicesTest, ADroppedStorageIsAdoptedBeforeOrWhenTheDeviceHasComputedIt) {
  auto swap = engine(8);
  const bool moves_in_use =
      running.device != nullptr && pages_of(running.device)->frames_in_use() != nullptr;
  const auto value = swap->allocate(page_size() * 2, nullptr);
  ASSERT_TRUE(swap->drop(value.storage));
  PinSet within;
  const auto made = swap->allocate(page_size() * 2, &within);
  const device::Event done = use_late(*swap, made.address);
  std::atomic<bool> is_adopted{false};
  std::thread device([&] {
    while (swap->statistics().fetch_wait == Duration(0) && !is_adopted) std::this_thread::yield();
    EXPECT_EQ(is_adopted, moves_in_use);
    if (!moves_in_use) gate_.set_value();
  });
  EXPECT_TRUE(swap->adopt(value.storage, made.storage, within));
  is_adopted = true;
  device.join();
  swap->unpin(within, nullptr, done);
  swap->release(made.storage);
  if (moves_in_use) {
    // Nobody has waited, and the device is not done: nothing of it may leave, or end.
    write_out(*swap, RangePart(value.storage), 2);
    const auto other = swap->allocate(page_size(), nullptr);
    write_out(*swap, RangePart(other.storage), 1);
    while (swap->statistics().spilled < page_size()) std::this_thread::yield();
    EXPECT_EQ(swap->statistics().spilled, page_size());
    gate_.set_value();
    while (swap->statistics().spilled < page_size() * 3) std::this_thread::yield();
  }
  EXPECT_EQ(done.wait().error, "");
  EXPECT_EQ(word(value.address, 0), 42U);
}

TEST_P(SwapEngineDevicesTest, GivesMemoryBackForOtherAllocators) {
  auto swap = engine(8);
  std::vector<std::byte*> ranges;
  for (std::uint64_t i = 0; i < 2; ++i) {
    ranges.push_back(swap->allocate(page_size() * 3, nullptr).address);
    for (std::size_t page = 0; page < 3; ++page) word(ranges[i], page) = 10 * i + page;
  }
  EXPECT_EQ(swap->make_room(page_size() * 4 - Bytes(1)), page_size() * 4);
  EXPECT_EQ(swap->statistics().counted, page_size() * 2);
  PinSet pins;
  const RangeUse held = swap->find(ranges[1]);
  swap->pin(pins, {&held, 1});
  // The page of the first range that is in memory, if any; an operator holds the rest.
  const Bytes in_memory = swap->statistics().counted;
  EXPECT_EQ(swap->make_room(1_GiB), in_memory - page_size() * 3);
  EXPECT_EQ(swap->statistics().counted, page_size() * 3);
  swap->unpin(pins);
  for (std::uint64_t i = 0; i < 2; ++i)
    for (std::size_t page = 0; page < 3; ++page) EXPECT_EQ(word(ranges[i], page), 10 * i + page);
  EXPECT_LE(swap->statistics().counted_peak, page_size() * 8);
}

/// Operators have to pin from then on.
TEST_P(SwapEngineDevicesTest, IsUnderPressureOnceItHasMadeRoom) {
  auto swap = engine(8);
  static_cast<void>(swap->allocate(page_size() * 3, nullptr));
  EXPECT_FALSE(swap->is_under_pressure());
  EXPECT_EQ(swap->make_room(page_size()), page_size());
  EXPECT_TRUE(swap->is_under_pressure());
}

TEST_P(SwapEngineDevicesTest, RoomForOthersWaitsForWhatTheDeviceUses) {
  auto swap = engine(4);
  const auto used = swap->allocate(page_size() * 3, nullptr);
  const device::Event done = use_late(*swap, used.address);
  std::thread device([this] { gate_.set_value(); });
  EXPECT_EQ(swap->make_room(page_size() * 2), page_size() * 2);
  EXPECT_TRUE(done.is_done());
  device.join();
  EXPECT_EQ(word(used.address, 0), 42U);
}

TEST_P(SwapEngineDevicesTest, EndsOnlyWhenTheDeviceHasDoneItsWork) {
  auto swap = engine(4);
  const auto used = swap->allocate(page_size() * 3, nullptr);
  const device::Event done = use_late(*swap, used.address);
  std::thread device([this] { gate_.set_value(); });
  swap.reset();
  EXPECT_TRUE(done.is_done());
  device.join();
}

TEST_P(SwapEngineDevicesTest, EnginesOfTwoDevicesRunSideBySide) {
  if (!running.device) GTEST_SKIP() << "the cases of the device have one of the host beside it";
  auto swap = engine(4);
  SwapEngineOptions options;
  options.budget = memory::kPageSize * 4;
  options.arena_size = 1_GiB;
  SwapEngine host(options, memory::make_host_pages(best_mapper()),
                  make_ram_store(Bytes(64 * kExtentBytes), 4, std::make_shared<Notifier>()),
                  clock_);
  std::vector<std::byte*> there;
  std::vector<std::byte*> here;
  const auto host_word = [&](std::size_t i) -> std::uint64_t& {
    return *reinterpret_cast<std::uint64_t*>(here[i] + 2 * memory::kPageBytes);
  };
  for (std::uint64_t i = 0; i < 4; ++i) {
    there.push_back(swap->allocate(page_size() * 3, nullptr).address);
    here.push_back(host.allocate(memory::kPageSize * 3, nullptr).address);
    word(there[i], 2) = 100 + i;
    host_word(i) = 200 + i;
  }
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(word(there[i], 2), 100 + i);
    EXPECT_EQ(host_word(i), 200 + i);
    EXPECT_NE(host.find(here[i]).storage, swap->find(there[i]).storage);
    EXPECT_FALSE(host.find(there[i]).storage.is_some());
    EXPECT_FALSE(swap->find(here[i]).storage.is_some());
  }
  EXPECT_LE(swap->statistics().counted_peak, page_size() * 4);
  EXPECT_LE(host.statistics().counted_peak, memory::kPageSize * 4);
}

/// Pages whose mapping needs whoever uses the engine meanwhile.
class SlowPages final : public memory::ShadowPages {
 public:
  SlowPages(std::shared_ptr<device::ShadowDevice> device, std::function<void()> prepare)
      : ShadowPages(std::move(device)), prepare_(std::move(prepare)) {}
  void prepare_map(memory::PageIndex, memory::SlotId) override { prepare_(); }

 private:
  std::function<void()> prepare_;
};

TEST(SwapEngineDevices, PagesAreMappedWhileOthersUseTheEngine) {
  const SteadyClock clock;
  const auto notifier = std::make_shared<Notifier>();
  const auto device = std::make_shared<device::ShadowDevice>();
  SwapEngineOptions options;
  options.budget = memory::ShadowPages::kSize * 2;
  options.arena_size = 1_GiB;
  std::atomic<SwapEngine*> engine{nullptr};
  std::atomic<Bytes> seen{Bytes()};
  SwapEngine swap(
      options,
      std::make_unique<SlowPages>(device, [&] { seen = engine.load()->statistics().counted_peak; }),
      host_memory_before(make_ram_store(Bytes(64 * kExtentBytes), 4, notifier), 2, notifier,
                         device),
      clock);
  engine = &swap;
  std::byte* storages[] = {swap.allocate(options.budget, nullptr).address,
                           swap.allocate(options.budget, nullptr).address};
  for (int turn = 0; turn < 4; ++turn) {
    PinSet pins;
    RangeUse use = swap.find(storages[turn % 2]);
    use.writes = true;
    swap.pin(pins, {&use, 1});
    swap.unpin(pins);
  }
  EXPECT_EQ(seen.load(), options.budget);
}

TEST_P(SwapEngineDevicesTest, AStoreOfAnotherDeviceIsRefused) {
  SwapEngineOptions options;
  options.budget = page_size() * 4;
  options.arena_size = 1_GiB;
  const auto notifier = std::make_shared<Notifier>();
  auto store = make_ram_store(Bytes(64 * kExtentBytes), 4, notifier);
  if (!running.device)
    store =
        host_memory_before(std::move(store), 2, notifier, std::make_shared<device::ShadowDevice>());
  EXPECT_THAT([&] { make_engine(options, std::move(store), clock_); },
              testing::ThrowsMessage<ConfigError>(testing::HasSubstr("moves memory of")));
}

/// The process has one set of signal handlers, whatever engines it has.
TEST_P(SwapEngineDevicesTest, AForkedChildReadsThePagesOfAllEngines) {
  SPILLWAY_NEEDS_REPORTS();
  std::array<std::unique_ptr<SwapEngine>, 2> engines{engine(4), engine(4)};
  std::vector<std::byte*> spilled;
  for (std::uint64_t i = 0; i < 2; ++i) {
    spilled.push_back(engines[i]->allocate(page_size() * 4, nullptr).address);
    for (std::size_t page = 0; page < 4; ++page) word(spilled[i], page) = 10 * i + page;
    engines[i]->allocate(page_size() * 4, nullptr);
  }
  for (const auto& swap : engines) swap->before_fork();
  const pid_t child = ::fork();
  if (child == 0) {
    for (const auto& swap : engines) swap->after_fork_in_child();
    bool is_right = true;
    for (std::uint64_t i = 0; i < 2; ++i)
      for (std::size_t page = 0; page < 4; ++page)
        is_right &= word(spilled[i], page) == 10 * i + page;
    std::_Exit(is_right ? 0 : 1);
  }
  for (const auto& swap : engines) swap->after_fork_in_parent();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  for (std::uint64_t i = 0; i < 2; ++i)
    for (std::size_t page = 0; page < 4; ++page) EXPECT_EQ(word(spilled[i], page), 10 * i + page);
}

/// Workers of a data loader live as long as the trainer, and cannot touch the pages of a device:
/// what was spilled when they came was kept for them to the end.
TEST_P(SwapEngineDevicesTest, AForkKeepsNothingForChildrenThatCannotReadThePages) {
  if (!running.device) GTEST_SKIP() << "forked children read the pages of the host";
  const auto swap = engine(4);
  std::byte* const spilled = swap->allocate(page_size() * 4, nullptr).address;
  for (std::size_t page = 0; page < 4; ++page) word(spilled, page) = page;
  finish_operators();
  std::byte* const resident = swap->allocate(page_size() * 4, nullptr).address;
  for (std::size_t page = 0; page < 4; ++page) word(resident, page) = 10 + page;
  const Bytes before = swap->statistics().store.extents_in_use;
  ASSERT_GT(before, Bytes());
  std::array<int, 2> end{};
  ASSERT_EQ(::pipe(end.data()), 0);
  swap->before_fork();
  const pid_t child = ::fork();
  if (child == 0) {
    swap->after_fork_in_child();
    ::close(end[1]);
    char none = 0;
    std::_Exit(::read(end[0], &none, 1) == 0 ? 0 : 1);
  }
  swap->after_fork_in_parent();
  ::close(end[0]);
  for (std::size_t page = 0; page < 4; ++page) EXPECT_EQ(word(resident, page), 10 + page);
  finish_operators();
  swap->release(swap->find(spilled).storage);
  EXPECT_LE(swap->statistics().store.extents_in_use + page_size() * 4, before);
  ::close(end[1]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

/// Its free frames were given up and made anew, so others could take their memory in between.
TEST_P(SwapEngineDevicesTest, AForkLeavesFreeFramesThatNoChildShares) {
  class CountedPages final : public memory::ShadowPages {
   public:
    CountedPages(std::shared_ptr<device::ShadowDevice> device, std::size_t& made)
        : ShadowPages(std::move(device)), made_(made) {}
    void make_frame(memory::SlotId slot) override {
      ++made_;
      ShadowPages::make_frame(slot);
    }

   private:
    std::size_t& made_;
  };
  const auto device = std::dynamic_pointer_cast<device::ShadowDevice>(running.device);
  if (device == nullptr) GTEST_SKIP() << "frames are counted on a device of these tests";
  std::size_t made = 0;
  SwapEngineOptions options;
  options.budget = page_size() * 4;
  options.arena_size = 1_GiB;
  SwapEngine swap(options, std::make_unique<CountedPages>(device, made), ram_store(256), clock_);
  running.engine = &swap;
  std::byte* memory = swap.allocate(page_size() * 4, nullptr).address;
  for (std::size_t page = 0; page < 4; ++page) word(memory, page) = page;
  finish_operators();
  swap.release(swap.find(memory).storage);
  const std::size_t before = made;
  swap.before_fork();
  swap.after_fork_in_parent();
  memory = swap.allocate(page_size() * 4, nullptr).address;
  for (std::size_t page = 0; page < 4; ++page) word(memory, page) = page;
  finish_operators();
  EXPECT_EQ(made, before);
}

INSTANTIATE_TEST_SUITE_P(Pages, SwapEngineDevicesTest, testing::ValuesIn(all_pages()), pages_case);

}  // namespace
}  // namespace spillway::swap
