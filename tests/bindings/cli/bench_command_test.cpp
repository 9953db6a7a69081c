#include "bench_command.h"

#include <gmock/gmock.h>

#include "support/golden_folder.h"
#include "support/golden_text.h"

namespace spillway::cli {
namespace {

swap::DiskProbe probe_of_two() {
  swap::DiskProbe probe;
  probe.description = "io_uring, direct I/O, /scratch (xfs)";
  probe.first_write_bytes_per_second = 1.5e9;
  probe.points = {
      {1_MiB, 4, {2e9, 1.9e9, 2.1e9}, {3e9, 2.9e9, 3.1e9}, {1e9, 0.9e9, 1.1e9}, {1.2e9, 1e9, 2e9}},
      {2_MiB, 16, {4e9, 3e9, 5e9}, {5e9, 4e9, 6e9}, {2e9, 1.9e9, 2.1e9}, {2.5e9, 2.4e9, 2.6e9}}};
  return probe;
}

TEST(RatesTable, IsWhatItsFileShows) {
  GoldenText golden(golden_file("disk_rates.txt"));
  swap::DiskProbe probe = probe_of_two();
  golden.add("two points", rates_table(probe));
  auto rate = to_disk_rate(probe, "/scratch/x", "nvme0n1", "/scratch", "now");
  golden.add("costs that were not measured", costs_text(rate));
  probe.points[0].block = 2_MiB;
  probe.points[0].queue_depth = 1;
  probe.slowdown_seconds_per_byte = 7e-11;
  rate = to_disk_rate(probe, "/scratch/x", "nvme0n1", "/scratch", "now");
  rate.checksum = TransferRate(9e9);
  golden.add("costs that were", costs_text(rate));
  EXPECT_NEAR(*rate.write_fixed_seconds, 2097152 * (1 / 2e9 - 1 / 4e9), 1e-9);
}

TEST(MeasurableStores, AreAllThatUseADirectory) {
  EXPECT_EQ(alternatives(measurable_stores()), "auto|io_uring|posix");
}

TEST(ToDiskRate, KeepsTheBestPointAndAllSamples) {
  const auto rate = to_disk_rate(probe_of_two(), "/scratch/x", "nvme0n1", "/scratch", "now");
  EXPECT_EQ(rate.directory, "/scratch/x");
  EXPECT_EQ(rate.read.bytes_per_second(), 5e9);
  EXPECT_EQ(rate.write.bytes_per_second(), 4e9);
  EXPECT_EQ(rate.both.bytes_per_second(), 4.5e9);
  ASSERT_EQ(rate.samples.size(), 6u);
  EXPECT_EQ(rate.samples[5].load, topology::Load::kBoth);
  EXPECT_EQ(rate.samples[5].block, 2_MiB);
  EXPECT_EQ(rate.samples[5].read.bytes_per_second(), 2.5e9);
}

}  // namespace
}  // namespace spillway::cli
