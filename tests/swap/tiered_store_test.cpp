// Host memory in front of another store: what goes where, and what becomes of it.
#include "store/tiered/factory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "spillway/device/cpu.h"
#include "store/extent_place.h"
#include "store/ram/factory.h"
#include "store/retrying/factory.h"
#include "support/fault_store.h"
#include "support/forwarding_store.h"
#include "support/golden_part.h"
#include "support/host_memory_before.h"
#include "support/page_patterns.h"
#include "support/shadow_device.h"

namespace spillway::swap {
namespace {

using testing::IsEmpty;

const SteadyClock kClock;

/// Shows what reaches the lower store, and holds its writes back while told to.
class WatchedStore final : public ForwardingStore {
 public:
  explicit WatchedStore(std::unique_ptr<SpillStore> child) : ForwardingStore(std::move(child)) {}

  bool holds_writes = false;
  int fails_writes_with = 0;
  std::vector<const std::byte*> written_from;
  std::size_t extents = 0;  ///< Reserved and not released.

  void let_go() {
    holds_writes = false;
    for (const Transfer& transfer : std::exchange(held_, {})) child_->submit(transfer);
  }
  std::size_t held() const { return held_.size(); }

 private:
  std::optional<ExtentId> do_reserve_extent(StoreTier tier) override {
    auto extent = child_->reserve_extent(tier);
    extents += extent ? 1 : 0;
    return extent;
  }
  void do_release_extent(ExtentId extent) override {
    --extents;
    child_->release_extent(extent);
  }
  void do_submit(const Transfer& transfer) override {
    if (transfer.direction == Direction::kWrite) written_from.push_back(transfer.memory);
    if (transfer.direction == Direction::kWrite && holds_writes) {
      held_.push_back(transfer);
    } else {
      child_->submit(transfer);
    }
  }
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override {
    child_->reap(results, timeout);
    for (TransferResult& result : results) {
      if (fails_writes_with == 0 || result.transfer.direction != Direction::kWrite) continue;
      result.error = fails_writes_with;
      result.detail = "the disk is gone";
    }
  }

  std::vector<Transfer> held_;
};

class TieredStoreTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kSlabs = 16;  // Two of them are to be free.
  static constexpr std::size_t kLower = 8;

  void SetUp() override {
    auto notifier = std::make_shared<Notifier>();
    auto watched = std::make_unique<WatchedStore>(
        make_ram_store(Bytes(kLower * kExtentBytes), /*queue_depth=*/4, notifier));
    lower_ = watched.get();
    store_ = host_memory_before(std::move(watched), kSlabs, notifier);
  }

  ExtentId written(std::uint64_t pattern, StoreTier tier = StoreTier::kAny) {
    const auto extent = store_->reserve_extent(tier);
    EXPECT_TRUE(extent);
    write(*extent, pattern);
    return *extent;
  }
  void write(ExtentId extent, std::uint64_t pattern) {
    pages_.fill(0, pattern);
    const TransferResult result =
        carry_out(*store_, {Direction::kWrite, extent, pages_[0], kExtentBytes, 0});
    EXPECT_EQ(result.error, 0) << result.detail;
  }
  void expect(ExtentId extent, std::uint64_t pattern) {
    const TransferResult back =
        carry_out(*store_, {Direction::kRead, extent, pages_[1], kExtentBytes, 0});
    EXPECT_EQ(back.error, 0) << back.detail;
    EXPECT_TRUE(pages_.holds(1, pattern)) << "pattern " << pattern;
  }
  /// Lets background work go on until nothing of it is left to do.
  void settle() {
    std::vector<TransferResult> results;
    for (int round = 0; round < 32; ++round) store_->reap(results, std::chrono::milliseconds(0));
    EXPECT_THAT(results, IsEmpty());
  }
  bool is_in_host_memory(ExtentId extent) {
    const std::size_t before = lower_->report().read.count();
    const auto result = carry_out(*store_, {Direction::kRead, extent, pages_[1], kExtentBytes, 0});
    EXPECT_EQ(result.error, 0) << result.detail;
    return lower_->report().read.count() == before;
  }

  PatternPages pages_{2};
  WatchedStore* lower_ = nullptr;
  std::unique_ptr<SpillStore> store_;
};

TEST_F(TieredStoreTest, FillsHostMemoryFirst) {
  const ExtentId extent = written(1);
  expect(extent, 1);
  EXPECT_THAT(lower_->written_from, IsEmpty());
  const StoreReport report = store_->report();
  EXPECT_EQ(report.host.written, Bytes(kExtentBytes));
  EXPECT_EQ(report.host.read, Bytes(kExtentBytes));
  EXPECT_EQ(report.host.capacity, Bytes(kSlabs * kExtentBytes));
  EXPECT_EQ(report.host.in_use, Bytes(kExtentBytes));
  EXPECT_EQ(report.written_to_disks(), Bytes());
}

TEST_F(TieredStoreTest, DemotesTheOldestWhereRoomGetsShort) {
  std::vector<ExtentId> extents;
  for (std::uint32_t i = 0; i < kSlabs; ++i) extents.push_back(written(100 + i));
  settle();
  const StoreReport report = store_->report();
  EXPECT_EQ(report.host.demoted, Bytes(2 * kExtentBytes));
  EXPECT_EQ(report.host.in_use, Bytes((kSlabs - 2) * kExtentBytes));
  EXPECT_EQ(report.written_to_disks(), Bytes(2 * kExtentBytes));
  EXPECT_EQ(lower_->extents, 2u);
  for (std::uint32_t i = 0; i < kSlabs; ++i) {
    EXPECT_EQ(is_in_host_memory(extents[i]), i >= 2) << i;
    expect(extents[i], 100 + i);
  }
}

TEST_F(TieredStoreTest, NeverHoldsMoreThanItsSlabs) {
  GoldenPart golden;
  std::map<ExtentId, std::uint64_t> stored;
  for (std::uint64_t i = 0; i < kSlabs + kLower; ++i) {
    const auto extent = store_->reserve_extent();
    ASSERT_TRUE(extent) << "of " << kSlabs + kLower << " only " << i;
    write(*extent, i + 1);
    stored[*extent] = i + 1;
    EXPECT_LE(store_->report().host.in_use, store_->report().host.capacity);
  }
  EXPECT_FALSE(store_->reserve_extent());
  golden.add(store_->report().refusal);
  settle();
  for (const auto& [extent, pattern] : stored) expect(extent, pattern);
  EXPECT_EQ(store_->report().extents_in_use, store_->report().capacity);
}

TEST_F(TieredStoreTest, TakesWhatAPlanSendsFarPastHostMemory) {
  const ExtentId far = written(1, StoreTier::kFar);
  EXPECT_EQ(lower_->written_from, std::vector<const std::byte*>{pages_[0]});
  EXPECT_FALSE(is_in_host_memory(far));
  expect(far, 1);
  EXPECT_EQ(store_->report().host.in_use, Bytes());
  EXPECT_EQ(store_->report().written_to_disks(), Bytes(kExtentBytes));
}

TEST_F(TieredStoreTest, KeepsWhatAPlanWantsNear) {
  std::vector<ExtentId> near;
  for (std::uint32_t i = 0; i < kSlabs; ++i) near.push_back(written(i + 1, StoreTier::kHost));
  settle();
  EXPECT_EQ(store_->report().host.demoted, Bytes());
  const ExtentId beyond = written(77, StoreTier::kHost);
  EXPECT_FALSE(is_in_host_memory(beyond)) << "what finds it full goes on";
  for (std::uint32_t i = 0; i < kSlabs; ++i) {
    EXPECT_TRUE(is_in_host_memory(near[i]));
    expect(near[i], i + 1);
  }
}

TEST_F(TieredStoreTest, UsesHostMemoryForWhatTheDisksTakeNoMore) {
  for (std::size_t i = 0; i < kLower; ++i) written(i + 1, StoreTier::kFar);
  const ExtentId extent = written(99, StoreTier::kFar);
  EXPECT_TRUE(is_in_host_memory(extent));
  expect(extent, 99);
  EXPECT_EQ(store_->report().refusal, "");
}

TEST_F(TieredStoreTest, ReadsWhatIsOnItsWayDown) {
  lower_->holds_writes = true;
  std::vector<ExtentId> extents;
  for (std::uint32_t i = 0; i < kSlabs; ++i) extents.push_back(written(i + 1));
  settle();
  ASSERT_EQ(lower_->held(), 2u);
  for (std::uint32_t i = 0; i < kSlabs; ++i) expect(extents[i], i + 1);
  lower_->let_go();
  settle();
  EXPECT_EQ(store_->report().host.demoted, Bytes(2 * kExtentBytes));
  for (std::uint32_t i = 0; i < kSlabs; ++i) expect(extents[i], i + 1);
}

TEST_F(TieredStoreTest, GivesUpADemotionOfWhatWasReleased) {
  lower_->holds_writes = true;
  std::vector<ExtentId> extents;
  for (std::uint32_t i = 0; i < kSlabs; ++i) extents.push_back(written(i + 1));
  settle();
  store_->release_extent(extents[0]);
  EXPECT_EQ(store_->report().extents_in_use, Bytes((kSlabs - 1) * kExtentBytes));
  lower_->let_go();
  settle();
  EXPECT_EQ(lower_->extents, 1u) << "the other one";
  EXPECT_EQ(store_->report().host.demoted, Bytes(kExtentBytes));
  for (std::uint32_t i = 1; i < kSlabs; ++i) expect(extents[i], i + 1);
}

// Its slab and its place below are taken while it is on its way, and no other is left: the room
// that the release has made is there all the same.
TEST_F(TieredStoreTest, RoomOfAReleaseIsThereAtOnce) {
  std::vector<ExtentId> extents;
  for (std::size_t i = 0; i + 2 < kLower; ++i) extents.push_back(written(500 + i, StoreTier::kFar));
  lower_->holds_writes = true;
  for (std::uint32_t i = 0; i < kSlabs; ++i) extents.push_back(written(i + 1));
  settle();
  ASSERT_EQ(lower_->held(), 2u);
  ASSERT_EQ(lower_->extents, kLower);
  EXPECT_FALSE(store_->reserve_extent());
  const ExtentId on_its_way = extents[kLower - 2];
  store_->release_extent(on_its_way);
  const auto again = store_->reserve_extent();
  ASSERT_TRUE(again);
  EXPECT_FALSE(store_->reserve_extent());
  pages_.fill(0, 1234);
  store_->submit({Direction::kWrite, *again, pages_[0], kExtentBytes, 7});
  settle();  // Not before the bytes that were there have come through.
  lower_->let_go();
  EXPECT_EQ(reap_all(*store_, 1).front().error, 0);
  settle();
  expect(*again, 1234);
  EXPECT_EQ(store_->report().extents_in_use, Bytes((kSlabs + kLower - 2) * kExtentBytes));
}

TEST_F(TieredStoreTest, LosesNothingWhereADemotionFails) {
  lower_->fails_writes_with = EIO;
  std::vector<ExtentId> extents;
  for (std::uint32_t i = 0; i < kSlabs; ++i) extents.push_back(written(i + 1));
  settle();
  EXPECT_EQ(store_->report().host.demoted, Bytes());
  EXPECT_EQ(lower_->extents, 0u);
  const std::size_t tried = lower_->written_from.size();
  for (std::uint32_t i = 0; i < kSlabs; ++i) expect(extents[i], i + 1);
  settle();
  EXPECT_EQ(lower_->written_from.size(), tried) << "it is not tried for ever";
  EXPECT_EQ(store_->report().refusal, "") << "nobody was refused yet";
  // What goes there at once fails as it does without host memory.
  const auto far = store_->reserve_extent(StoreTier::kFar);
  ASSERT_TRUE(far);
  const TransferResult result =
      carry_out(*store_, {Direction::kWrite, *far, pages_[0], kExtentBytes, 5});
  EXPECT_EQ(result.error, EIO);
  EXPECT_EQ(result.detail, "the disk is gone");
  EXPECT_EQ(result.transfer.tag, 5u);
  EXPECT_EQ(result.transfer.extent, *far);
}

TEST_F(TieredStoreTest, SaysWhyADiskThatFailedTakesNoMore) {
  GoldenPart golden;
  auto notifier = std::make_shared<Notifier>();
  FaultOptions dead;
  dead.transfers_until_death = 0;
  auto disk = std::make_unique<FaultStore>(make_ram_store(Bytes(8 * kExtentBytes), 4, notifier),
                                           notifier, dead);
  store_ = host_memory_before(
      make_retrying_store(std::move(disk), notifier, kClock, {.attempts_max = 1}), kSlabs,
      notifier);
  std::vector<ExtentId> extents;
  for (std::uint32_t i = 0; i < kSlabs; ++i) extents.push_back(written(i + 1));
  settle();
  EXPECT_FALSE(store_->reserve_extent());
  golden.add(store_->report().refusal);
  for (std::uint32_t i = 0; i < kSlabs; ++i) expect(extents[i], i + 1);
}

TEST_F(TieredStoreTest, TellsAForkedChildWhereItLies) {
  std::vector<ExtentId> extents;
  for (std::uint32_t i = 0; i < kSlabs; ++i) extents.push_back(written(i + 1));
  settle();
  const auto holds = [&](ExtentId extent, std::uint64_t pattern) {
    const ExtentPlace place = store_->locate(extent);
    return read_extent(place, pages_[1], kExtentBytes) == 0 && pages_.holds(1, pattern);
  };
  for (std::uint32_t i = 0; i < kSlabs; ++i) EXPECT_TRUE(holds(extents[i], i + 1)) << i;
}

/// A queue whose copies fail, as those of a device that is lost.
class FailingQueue final : public device::Queue {
 public:
  explicit FailingQueue(std::unique_ptr<Queue> real)
      : Queue(real->device()), real_(std::move(real)) {}

 private:
  void do_copy(device::DeviceSpan, device::DeviceSpan) override {
    real_->run([] { return device::Outcome{"the device is lost"}; });
  }
  void do_run(std::function<device::Outcome()> work) override { real_->run(std::move(work)); }
  device::Event do_record(device::Timing timing) override { return real_->record(timing); }
  void do_wait(const std::shared_ptr<const device::EventState>& event) override {
    real_->wait(device::Event(event));
  }
  const std::unique_ptr<Queue> real_;
};

class LostDevice final : public device::Device {
 public:
  LostDevice() : Device({}, {}) {}

 private:
  device::MemoryInfo do_memory() const override { return {}; }
  std::byte* do_allocate(Bytes) override { return nullptr; }
  void do_release(device::DeviceSpan) noexcept override {}
  std::unique_ptr<device::Queue> do_make_queue(const std::string& name) override {
    return std::make_unique<FailingQueue>(real_->make_queue(name));
  }
  std::string do_pin_host(device::DeviceSpan) override { return {}; }
  void do_unpin_host(device::DeviceSpan) noexcept override {}
  const std::unique_ptr<Device> real_ = device::make_cpu_device();
};

TEST_F(TieredStoreTest, ReportsCopiesThatFail) {
  GoldenPart golden;
  auto notifier = std::make_shared<Notifier>();
  const auto device = std::make_shared<LostDevice>();
  auto slabs = std::make_unique<device::HostSlabs>(
      *device, device::HostSlabsOptions{.slab_size = Bytes(kExtentBytes), .slab_count = 2});
  store_ = make_tiered_store(device, std::move(slabs),
                             make_ram_store(Bytes(2 * kExtentBytes), 4, notifier), notifier);
  const auto extent = store_->reserve_extent();
  ASSERT_TRUE(extent);
  const TransferResult result =
      carry_out(*store_, {Direction::kWrite, *extent, pages_[0], kExtentBytes, 3});
  EXPECT_EQ(result.error, EIO);
  golden.add(result.detail);
  EXPECT_EQ(store_->report().host.written, Bytes());
  store_->release_extent(*extent);
  EXPECT_EQ(store_->report().host.in_use, Bytes());
}

/// Pages in the memory of a device that the store below cannot reach.
class TieredDeviceStoreTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kSlabs = 8;  // Two of them stage.
  static constexpr std::size_t kLower = 24;
  static constexpr std::size_t kPages = 8;

  void SetUp() override { open(make_ram_store(Bytes(kLower * kExtentBytes), 4, notifier_)); }

  void open(std::unique_ptr<SpillStore> lower) {
    auto slabs = std::make_unique<device::HostSlabs>(
        *device_, device::HostSlabsOptions{.slab_size = Bytes(kExtentBytes), .slab_count = kSlabs});
    store_.reset();
    store_ = make_tiered_store(device_, std::move(slabs), std::move(lower), notifier_);
  }

  std::shared_ptr<device::ShadowDevice> device_ = std::make_shared<device::ShadowDevice>();
  DevicePatternPages pages_{device_, kPages};
  std::shared_ptr<Notifier> notifier_ = std::make_shared<Notifier>();
  std::unique_ptr<SpillStore> store_;
};

TEST_F(TieredDeviceStoreTest, StagesWhatGoesPastHostMemory) {
  std::map<ExtentId, std::uint64_t> stored;
  std::uint64_t pattern = 0;
  const auto move = [&](Direction direction, auto first, auto last) {
    std::size_t at = 0;
    for (auto each = first; each != last; ++each, ++at)
      store_->submit({direction, each->first, pages_[at], kExtentBytes, at});
    for (const TransferResult& result : reap_all(*store_, at)) EXPECT_EQ(result.error, 0);
  };
  // More at once than the queue of the lower store takes, or the slabs that stage.
  for (const StoreTier tier : {StoreTier::kAny, StoreTier::kFar, StoreTier::kHost}) {
    std::map<ExtentId, std::uint64_t> batch;
    for (std::size_t i = 0; i < store_->queue_depth(); ++i) {
      const auto extent = store_->reserve_extent(tier);
      ASSERT_TRUE(extent);
      batch[*extent] = ++pattern;
    }
    std::size_t at = 0;
    for (const auto& [extent, number] : batch) pages_.fill(at++, number);
    move(Direction::kWrite, batch.begin(), batch.end());
    stored.insert(batch.begin(), batch.end());
  }
  EXPECT_GT(store_->report().written_to_disks(), Bytes());
  EXPECT_EQ(store_->report().host.capacity, Bytes(6 * kExtentBytes));
  for (auto first = stored.begin(); first != stored.end();) {
    const auto last = std::next(first, 4);
    for (std::size_t at = 0; at < 4; ++at) pages_.fill(at, 0);
    move(Direction::kRead, first, last);
    for (std::size_t at = 0; first != last; ++first, ++at)
      EXPECT_TRUE(pages_.holds(at, first->second)) << first->second;
  }
}

TEST_F(TieredDeviceStoreTest, HandsFailuresOfTheStoreBelowOn) {
  for (const bool reads_fail : {false, true}) {
    FaultOptions faults;
    faults.failing = 1.0;
    (reads_fail ? faults.spares_writes : faults.spares_reads) = true;
    open(std::make_unique<FaultStore>(make_ram_store(Bytes(kLower * kExtentBytes), 4, notifier_),
                                      notifier_, faults));
    // Often enough to run out of slabs that stage, if one were lost each time.
    for (std::uint64_t round = 1; round <= 8; ++round) {
      const auto extent = store_->reserve_extent(StoreTier::kFar);
      ASSERT_TRUE(extent);
      pages_.fill(0, round);
      const Transfer write{Direction::kWrite, *extent, pages_[0], kExtentBytes, round};
      EXPECT_EQ(carry_out(*store_, write).error, reads_fail ? 0 : EIO);
      const Transfer read{Direction::kRead, *extent, pages_[1], kExtentBytes, round};
      EXPECT_EQ(carry_out(*store_, read).error, reads_fail ? EIO : 0);
      store_->release_extent(*extent);
    }
  }
}

// Everything at once, by seed: a faulty disk whose writes fail and say so, small host memory.
TEST(TieredStoreWalk, KeepsEveryExtentAboveAFaultyDisk) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    auto notifier = std::make_shared<Notifier>();
    auto disk =
        make_faulty_disk(random, Faults::kOfWrites, Bytes(12 * kExtentBytes), notifier, kClock);
    auto store = host_memory_before(std::move(disk), /*slabs=*/8 + random() % 9, notifier);
    PatternPages pages(2);
    std::map<ExtentId, std::uint64_t> stored;
    for (std::uint64_t step = 1; step <= 120; ++step) {
      const auto tier = static_cast<StoreTier>(random() % 3);
      if (random() % 3 != 0) {
        if (const auto extent = store->reserve_extent(tier)) {
          pages.fill(0, step);
          const Transfer transfer{Direction::kWrite, *extent, pages[0], kExtentBytes, step};
          if (carry_out(*store, transfer).error == 0) {
            stored[*extent] = step;
          } else {
            store->release_extent(*extent);
          }
          continue;
        }
      }
      if (stored.empty()) continue;
      auto entry = stored.begin();
      std::advance(entry, random() % stored.size());
      const Transfer transfer{Direction::kRead, entry->first, pages[1], kExtentBytes, step};
      const TransferResult back = carry_out(*store, transfer);
      ASSERT_EQ(back.error, 0) << back.detail;
      ASSERT_TRUE(pages.holds(1, entry->second)) << "step " << step;
      if (random() % 2 == 0) continue;
      store->release_extent(entry->first);
      stored.erase(entry);
    }
    EXPECT_EQ(store->report().extents_in_use, Bytes(stored.size() * kExtentBytes));
  }
}

}  // namespace
}  // namespace spillway::swap
