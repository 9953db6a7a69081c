#include "spillway/swap/disk_probe.h"

#include <gtest/gtest.h>

#include "spillway/base/error.h"
#include "store/notifier.h"
#include "store/ram/factory.h"
#include "support/error_text.h"
#include "support/golden_part.h"
#include "support/temporary_directory.h"
#include "swap/masked_io.h"

namespace spillway::swap {
namespace {

using namespace std::chrono_literals;

/// Every look at it takes a millisecond.
class TickingClock final : public Clock {
 public:
  TimePoint now() const override { return now_ += 1ms; }

 private:
  mutable TimePoint now_{};
};

std::unique_ptr<SpillStore> ram(Bytes capacity) {
  return make_ram_store(capacity, 16, std::make_shared<Notifier>());
}

TEST(MeasureStore, DividesBytesByTime) {
  const auto store = ram(64_MiB);
  DiskProbeOptions options;
  options.file_size = 64_MiB;
  options.block_sizes = {2_MiB};
  options.queue_depths = {16};
  const DiskProbe probe = measure_store(*store, options, TickingClock());
  ASSERT_EQ(probe.points.size(), 1U);
  // 32 pages of 2 MiB, 16 at a time: a look at the start, one per round (two), one at the end.
  const double expected = 64.0 * 1048576.0 / 0.003;
  EXPECT_DOUBLE_EQ(probe.points[0].write.median, expected);
  EXPECT_DOUBLE_EQ(probe.points[0].read.median, expected);
  EXPECT_DOUBLE_EQ(probe.points[0].mixed_write.median, expected / 2);
  EXPECT_DOUBLE_EQ(probe.points[0].mixed_read.median, expected / 2);
  EXPECT_DOUBLE_EQ(probe.first_write_bytes_per_second, expected);
  EXPECT_DOUBLE_EQ(probe.points[0].read.least, probe.points[0].read.most);
  EXPECT_EQ(probe.best(), probe.points.data());
}

TEST(MeasureStore, CoversEveryCombinationAndTellsHowFarItIs) {
  const auto store = ram(8_MiB);
  std::vector<std::string> told;
  std::size_t total = 0;
  DiskProbeOptions options;
  options.file_size = 8_MiB;
  options.block_sizes = {4_KiB, 1_MiB};
  options.queue_depths = {1, 3};
  options.repetitions = 2;
  options.progress = [&](const DiskProbeProgress& progress) {
    EXPECT_EQ(progress.passes, told.size());
    told.push_back(progress.current);
    total = progress.passes_total;
  };
  const DiskProbe probe = measure_store(*store, options, TickingClock());
  EXPECT_EQ(told.size(), total);
  EXPECT_EQ(total, 1U + 3U * 2U * 2U * 2U);
  EXPECT_EQ(told[1], "write, 4.00 KiB blocks, depth 1");
  ASSERT_EQ(probe.points.size(), 4U);
  EXPECT_EQ(probe.points[1].block, 4_KiB);
  EXPECT_EQ(probe.points[1].queue_depth, 3U);
  EXPECT_EQ(store->report().extents_in_use, Bytes()) << "extents were kept";
}

TEST(MeasureStore, EndsAPassInTimeOnASlowDisk) {
  const auto store = ram(64_MiB);
  DiskProbeOptions options;
  options.file_size = 64_MiB;
  options.block_sizes = {2_MiB};
  options.queue_depths = {1};
  options.repetitions = 1;
  options.longest_pass = 10ms;  // of 32 that the whole walk takes on this clock
  measure_store(*store, options, TickingClock());
  const StoreReport report = store->report();
  EXPECT_LT(report.read, 32_MiB);
  EXPECT_GE(report.read, 10_MiB);
}

TEST(MeasureStore, RefusesImpossibleOptions) {
  const auto store = ram(8_MiB);
  DiskProbeOptions options;
  options.file_size = 8_MiB;
  options.queue_depths = {17};
  EXPECT_THROW(measure_store(*store, options, TickingClock()), ConfigError);
  options.queue_depths = {1};
  options.block_sizes = {4_MiB};
  EXPECT_THROW(measure_store(*store, options, TickingClock()), ConfigError);
  options.block_sizes = {2_MiB};
  options.file_size = 64_MiB;
  GoldenPart().add(error_text<IoError>([&] { measure_store(*store, options, TickingClock()); }));
  EXPECT_EQ(store->report().extents_in_use, Bytes());
}

TEST(MeasureDirectory, MeasuresARealDisk) {
  const TemporaryDirectory directory;
  DiskProbeOptions options;
  options.file_size = 16_MiB;
  options.block_sizes = {2_MiB};
  options.queue_depths = {4};
  options.repetitions = 1;
  const DiskProbe probe = measure_directory(directory.path(), options);
  ASSERT_EQ(probe.points.size(), 1U);
  for (const Spread& rate : {probe.points[0].write, probe.points[0].read,
                             probe.points[0].mixed_write, probe.points[0].mixed_read})
    EXPECT_GT(rate.median, 0.0);
  GoldenPart golden;
  mask_io(golden);
  golden.add(probe.description);
  EXPECT_TRUE(directory.entries().empty());
}

/// Does 100 rounds in the millisecond that it has alone, and 375 in the five of a pass.
class ScriptedWorkload final : public Workload {
 public:
  std::uint64_t rounds() const override {
    const std::size_t window = looks_++ / 2;
    const bool is_beside = window >= 2 && window % 2 == 0;
    if (looks_ % 2 == 0) rounds_ += is_beside ? 375 : 100;
    return rounds_;
  }
  void wait(Duration /*time*/) override {}

 private:
  mutable std::size_t looks_ = 0;
  mutable std::uint64_t rounds_ = 0;
};

TEST(MeasureStore, FindsWhatTransfersCostAWorkload) {
  const auto store = ram(64_MiB);
  const TickingClock clock;
  DiskProbeOptions options;
  options.file_size = 64_MiB;
  options.block_sizes = {2_MiB};
  options.queue_depths = {16};
  EXPECT_EQ(measure_store(*store, options, clock).slowdown_seconds_per_byte, std::nullopt);
  options.workload = [] { return std::make_unique<ScriptedWorkload>(); };
  const DiskProbe probe = measure_store(*store, options, clock);
  ASSERT_TRUE(probe.slowdown_seconds_per_byte.has_value());
  // A quarter of the rounds is lost to 64 MiB in 3 ms.
  EXPECT_NEAR(*probe.slowdown_seconds_per_byte, 0.25 * 0.003 / 67108864, 1e-16);
}

TEST(DiskProbe, FixedCostIsWhatATransferAloneTakesBeyondItsBytes) {
  const auto at = [](Bytes block, std::size_t depth, double write, double read) {
    return DiskPoint{block, depth, {write, write, write}, {read, read, read}, {}, {}};
  };
  DiskProbe probe;
  EXPECT_EQ(probe.fixed_seconds(&DiskPoint::write), std::nullopt);
  probe.points = {at(1_MiB, 1, 1e8, 1e8), at(1_MiB, 16, 1e9, 1e9), at(2_MiB, 1, 1e9, 2e9),
                  at(2_MiB, 4, 1.5e9, 2e9), at(2_MiB, 16, 2e9, 1.9e9)};
  EXPECT_NEAR(*probe.fixed_seconds(&DiskPoint::write), 2097152e-9 / 2, 1e-9) << "largest blocks";
  EXPECT_EQ(probe.fixed_seconds(&DiskPoint::read), 0.0) << "alone it is as fast as ever";
}

TEST(SlowdownPerByte, IsTheMedianOfWhatBytesCost) {
  // Work that takes 1 s alone takes 1 s + c per byte: at 2 GB/s and 50 ps, nine tenths are left.
  const std::vector<SlowdownSample> steady{{100, 90, 2e9}, {100, 91, 2e9}, {100, 89, 2e9}};
  EXPECT_NEAR(*slowdown_per_byte(steady), 5e-11, 1e-15);
  const std::vector<SlowdownSample> quicker{{100, 101, 2e9}, {100, 100.5, 2e9}, {100, 101, 2e9}};
  EXPECT_EQ(slowdown_per_byte(quicker), 0.0);
}

TEST(SlowdownPerByte, IsNoneWhereMeasurementsDisagree) {
  const std::vector<SlowdownSample> few{{100, 90, 2e9}, {100, 90, 2e9}};
  EXPECT_EQ(slowdown_per_byte(few), std::nullopt);
  const std::vector<SlowdownSample> wild{
      {100, 90, 2e9}, {100, 40, 2e9}, {100, 150, 2e9}, {100, 70, 2e9}, {100, 110, 2e9}};
  EXPECT_EQ(slowdown_per_byte(wild), std::nullopt);
  const std::vector<SlowdownSample> slow{{100, 90, 1e7}, {100, 90, 1e7}, {100, 90, 1e7}};
  EXPECT_EQ(slowdown_per_byte(slow), std::nullopt) << "10 ns per byte";
}

}  // namespace
}  // namespace spillway::swap
