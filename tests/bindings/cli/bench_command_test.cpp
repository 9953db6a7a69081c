#include "bench_command.h"

#include <gmock/gmock.h>

namespace spillway::cli {
namespace {

using testing::HasSubstr;

swap::DiskProbe probe_of_two() {
  swap::DiskProbe probe;
  probe.description = "io_uring, direct I/O, /scratch (xfs)";
  probe.first_write_gb_per_s = 1.5;
  probe.rates = {{1_MiB, 4, {2, 1.9, 2.1}, {3, 2.9, 3.1}, {1, 0.9, 1.1}, {1.2, 1.1, 1.3}},
                 {2_MiB, 16, {4, 3.9, 4.1}, {5, 4.9, 5.1}, {2, 1.9, 2.1}, {2.5, 2.4, 2.6}}};
  return probe;
}

TEST(RatesTable, HasALinePerPointAndMarksTheBest) {
  const std::string table = rates_table(probe_of_two());
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 7);
  EXPECT_THAT(table, HasSubstr("1.00 MiB      4    2.00 [1.90-2.10]"));
  EXPECT_THAT(table, HasSubstr("4.50 [4.30-4.70]    best"));  // Written and read together.
  EXPECT_THAT(table, HasSubstr("best: moves most while it writes and reads at once"));
  EXPECT_THAT(table, HasSubstr("--queue-depth (16)"));
  EXPECT_THAT(table, HasSubstr("first write into fresh space: 1.50 GB/s"));
}

TEST(MeasurableStores, AreAllThatUseADirectory) {
  EXPECT_EQ(alternatives(measurable_stores()), "auto|io_uring|posix");
}

TEST(CostsText, TellsWhatIsMeasuredAndWhatPlansAssume) {
  swap::DiskProbe probe = probe_of_two();
  auto rate = to_disk_rate(probe, "/scratch/x", "nvme0n1", "/scratch", "now");
  EXPECT_THAT(costs_text(rate), HasSubstr("write not measured"));
  EXPECT_THAT(costs_text(rate), HasSubstr("plans assume 50.0 ms per GB moved"));
  probe.rates[0].block = 2_MiB;
  probe.rates[0].queue_depth = 1;
  probe.slowdown_seconds_per_byte = 7e-11;
  rate = to_disk_rate(probe, "/scratch/x", "nvme0n1", "/scratch", "now");
  rate.checksum_bytes_per_second = 9e9;
  EXPECT_NEAR(*rate.write_fixed_seconds, 2097152 * (1 / 2e9 - 1 / 4e9), 1e-9);
  EXPECT_THAT(costs_text(rate), HasSubstr("loses 70.0 ms per GB moved"));
  EXPECT_THAT(costs_text(rate), HasSubstr("9.00 GB/s per processor"));
}

TEST(ToDiskRate, KeepsTheBestPointAndAllSamples) {
  const auto rate = to_disk_rate(probe_of_two(), "/scratch/x", "nvme0n1", "/scratch", "now");
  EXPECT_EQ(rate.directory, "/scratch/x");
  EXPECT_EQ(rate.read_bytes_per_second, 5e9);
  EXPECT_EQ(rate.write_bytes_per_second, 4e9);
  EXPECT_EQ(rate.both_bytes_per_second, 4.5e9);
  ASSERT_EQ(rate.samples.size(), 6u);
  EXPECT_EQ(rate.samples[5].load, topology::Load::kBoth);
  EXPECT_EQ(rate.samples[5].block, 2_MiB);
  EXPECT_EQ(rate.samples[5].read_bytes_per_second, 2.5e9);
}

}  // namespace
}  // namespace spillway::cli
