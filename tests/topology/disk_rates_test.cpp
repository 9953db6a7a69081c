#include "spillway/topology/disk_rates.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "fake_tree.h"
#include "spillway/base/error.h"
#include "support/damaged_text.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::topology {
namespace {

using testing::StartsWith;

DiskRate rate_of(const std::string& directory, double read) {
  DiskRate rate;
  rate.directory = directory;
  rate.device = "nvme0n1";
  rate.mount_point = "/scratch";
  rate.measured_at = "2026-11-21T10:00:00Z";
  rate.read = TransferRate(read);
  rate.write = TransferRate(2.5e9);
  rate.both = TransferRate(4e9);
  rate.samples = {{Load::kBoth, 2_MiB, 16, TransferRate(2e9), TransferRate(2e9)},
                  {Load::kRead, 1_MiB, 4, TransferRate(3e9), TransferRate()}};
  return rate;
}

std::string refusal_of(const std::string& path) {
  return error_text<ConfigError>([&] { DiskRates::load(path); });
}

TEST(DiskRates, ComeBackFromTheirFile) {
  FakeTree tree;
  const std::string path = tree.root() + "/new/folder/disks.json";
  DiskRates rates;
  rates.record(rate_of("/scratch/a", 3e9));
  rates.save(path);
  const DiskRates loaded = DiskRates::load(path);
  ASSERT_EQ(loaded.all().size(), 1u);
  const DiskRate& rate = loaded.all()[0];
  EXPECT_EQ(rate.directory, "/scratch/a");
  EXPECT_EQ(rate.measured_at, "2026-11-21T10:00:00Z");
  EXPECT_EQ(rate.both.bytes_per_second(), 4e9);
  ASSERT_EQ(rate.samples.size(), 2u);
  EXPECT_EQ(rate.samples[0].load, Load::kBoth);
  EXPECT_EQ(rate.samples[0].block, 2_MiB);
  EXPECT_EQ(rate.samples[1].depth, 4u);
}

TEST(DiskRates, KeepWhatTransfersCostWhereItWasMeasured) {
  GoldenPart golden;
  FakeTree tree;
  const std::string path = tree.root() + "/disks.json";
  DiskRates rates;
  rates.record(rate_of("/old", 3e9));
  DiskRate rate = rate_of("/new", 3e9);
  rate.write_fixed_seconds = 2e-4;
  rate.read_fixed_seconds = 0.0;
  rate.interference_seconds_per_byte = 7e-11;
  rate.checksum = TransferRate(9e9);
  rates.record(rate);
  rates.save(path);
  const DiskRates loaded = DiskRates::load(path);
  EXPECT_EQ(loaded.all()[0].interference_seconds_per_byte, std::nullopt);
  EXPECT_EQ(loaded.all()[0].write_fixed_seconds, std::nullopt);
  EXPECT_EQ(loaded.all()[1].write_fixed_seconds, 2e-4);
  EXPECT_EQ(loaded.all()[1].read_fixed_seconds, 0.0);
  EXPECT_EQ(loaded.all()[1].interference_seconds_per_byte, 7e-11);
  EXPECT_EQ(loaded.all()[1].checksum, TransferRate(9e9));
  rate.interference_seconds_per_byte = 7e-5;  // Somebody thought of microseconds.
  rates.record(rate);
  rates.save(path);
  golden.add(refusal_of(path));
}

LinkRate link_of(const std::string& name, double out) {
  LinkRate link;
  link.name = name;
  link.device = "cuda:0";
  link.measured_at = "2026-11-27T10:00:00Z";
  link.out = TransferRate(out);
  link.in = TransferRate(5e10);
  link.both = TransferRate(9e10);
  link.in_fixed_seconds = 1e-5;
  link.interference_seconds_per_byte = 0.0;
  link.samples = {{2_MiB, 16, false, link.out, link.in, link.both},
                  {2_MiB, 16, true, TransferRate(4e10), TransferRate(4e10), TransferRate(8e10)}};
  link.mapping = {{32_MiB, "copies", 1e-3, 2e-5}};
  link.pinning = {{1_GiB, 0.2}};
  return link;
}

TEST(DiskRates, KeepTheLinksOfGpusBesideThem) {
  GoldenPart golden;
  FakeTree tree;
  const std::string path = tree.root() + "/disks.json";
  DiskRates rates;
  rates.record(rate_of("/scratch", 3e9));
  rates.save(path);
  EXPECT_TRUE(DiskRates::load(path).links().empty());
  rates.record(link_of("Card", 3e10));
  rates.record(link_of("Other", 2e10));
  rates.record(link_of("Card", 4e10));
  rates.save(path);
  const DiskRates loaded = DiskRates::load(path);
  EXPECT_EQ(loaded.all().size(), 1u);
  ASSERT_EQ(loaded.links().size(), 2u);
  ASSERT_NE(loaded.link_of("Card"), nullptr);
  EXPECT_EQ(*loaded.link_of("Card"), link_of("Card", 4e10));
  EXPECT_EQ(loaded.link_of("Third"), nullptr);
  LinkRate slip = link_of("Card", 4e20);
  rates.record(slip);
  rates.save(path);
  golden.add(refusal_of(path));
}

TEST(DiskRates, LeaveNoTemporaryFile) {
  FakeTree tree;
  DiskRates().save(tree.root() + "/disks.json");
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(tree.root()))
    ++files;
  EXPECT_EQ(files, 1);
}

TEST(DiskRates, ReplaceWhatWasKnownOfADirectory) {
  DiskRates rates;
  rates.record(rate_of("/scratch", 1e9));
  rates.record(rate_of("/fast", 7e9));
  rates.record(rate_of("/scratch", 2e9));
  ASSERT_EQ(rates.all().size(), 2u);
  EXPECT_EQ(rates.find("/scratch", "")->read.bytes_per_second(), 2e9);
}

TEST(DiskRates, ServeOtherDirectoriesOfTheSameMount) {
  DiskRates rates;
  rates.record(rate_of("/scratch/a", 1e9));
  EXPECT_NE(rates.find("/scratch/b", "/scratch"), nullptr);
  EXPECT_EQ(rates.find("/scratch/b", "/"), nullptr);
  EXPECT_EQ(rates.find("/scratch/b", ""), nullptr);
}

TEST(DiskRates, AreEmptyWithoutAFileThatMayBeMissing) {
  FakeTree tree;
  EXPECT_TRUE(DiskRates::load_if_there(tree.root() + "/none.json").all().empty());
  DiskRates rates;
  rates.record(rate_of("/scratch", 1e9));
  rates.save(tree.root() + "/disks.json");
  EXPECT_EQ(DiskRates::load_if_there(tree.root() + "/disks.json").all().size(), 1u);
}

TEST(DiskRates, SayWhyTheyCannotBeRead) {
  GoldenPart golden;
  FakeTree tree;
  tree.write("/file", "");
  const auto refusal_to_read = [](const std::string& path, auto load) -> std::string {
    return error_text<IoError>([&] { load(path); });
  };
  const std::string missing = tree.root() + "/none.json";
  golden.add(refusal_to_read(missing, &DiskRates::load));
  golden.add(refusal_to_read(tree.root(), &DiskRates::load_if_there));
  golden.add(refusal_to_read(tree.root() + "/file/disks.json", &DiskRates::load_if_there));
}

TEST(DiskRates, RefuseAFileThatIsNotTheirs) {
  GoldenPart golden;
  FakeTree tree;
  const std::string path = tree.root() + "/disks.json";
  for (const char* text :
       {"{ not json", R"({"format": "something else", "version": 1, "disks": []})",
        R"({"format": "spillway disk rates", "version": 2, "disks": []})",
        R"({"format": "spillway disk rates", "version": 1, "disks": [{}]})"}) {
    tree.write("/disks.json", text);
    golden.add(refusal_of(path));
  }
}

TEST(DiskRates, SurviveDamage) {
  DiskRates rates;
  rates.record(rate_of("/scratch", 2e9));
  rates.record(rate_of("/fast", 3e9));
  FakeTree tree;
  rates.save(tree.root() + "/disks.json");
  std::ifstream file(tree.root() + "/disks.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  DamagedText damaged(20261122);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string broken = damaged(text);
    tree.write("/disks.json", broken);
    try {
      const DiskRates read = DiskRates::load(tree.root() + "/disks.json");
      for (const DiskRate& rate : read.all())
        ASSERT_TRUE(rate.read.bytes_per_second() >= 0.0 && rate.read.bytes_per_second() <= 1e12);
    } catch (const ConfigError& error) {
      ++refused;
      ASSERT_THAT(error.what(), StartsWith("not a usable file of disk rates: "));
    } catch (const std::exception& error) {
      FAIL() << "neither refused nor sound: " << error.what() << "\n" << broken;
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(DiskRates, RefuseRatesThatNoDiskHas) {
  GoldenPart golden;
  FakeTree tree;
  const std::string path = tree.root() + "/disks.json";
  for (const double rate : {-1.0, 1.0, 99e3, 1.1e12, 1e30, 1e300}) {
    DiskRates rates;
    rates.record(rate_of("/scratch", rate));
    rates.save(path);
    golden.add(refusal_of(path));
  }
  for (const std::string key :
       {"read_bytes_per_second", "write_bytes_per_second", "both_bytes_per_second"}) {
    tree.write("/disks.json", R"({"format": "spillway disk rates", "version": 1,
      "disks": [{"directory": "/a", ")" +
                                  key + R"(": 0, "samples": []}]})");
    golden.add(refusal_of(path));
  }
  // What was not measured is not written; in samples of one direction the other one is 0.
  for (const double rate : {0.0, 1e5, 3e9, 1e12}) {
    DiskRates rates;
    rates.record(rate_of("/scratch", rate));
    rates.save(path);
    EXPECT_EQ(refusal_of(path), "accepted") << rate;
  }
}

TEST(DiskRates, RefuseRatesThatAreNoNumbers) {
  GoldenPart golden;
  FakeTree tree;
  const std::string path = tree.root() + "/disks.json";
  for (const std::string value : {"1e400", "\"fast\"", "null"}) {
    tree.write("/disks.json",
               R"({"format": "spillway disk rates", "version": 1, "disks": [{"directory": "/a",)"
               R"("write_bytes_per_second": )" +
                   value + "}]}");
    golden.add(value, refusal_of(path));
  }
  tree.write("/disks.json", R"({"format": "spillway disk rates", "version": 1,
    "disks": [{"directory": "/a", "read_bytes_per_second": 2e9, "samples": []}]})");
  EXPECT_EQ(DiskRates::load(path).all()[0].write.bytes_per_second(), 0.0) << "not measured";
}

TEST(DiskRates, SayWhyTheyCannotBeSaved) {
  FakeTree tree;
  tree.write("/file", "");
  EXPECT_THROW(DiskRates().save(tree.root() + "/file/disks.json"), IoError);
}

TEST(DefaultDiskRatesPath, FollowsTheUsersFolders) {
  ASSERT_EQ(::setenv("XDG_CONFIG_HOME", "/config", 1), 0);
  EXPECT_EQ(default_disk_rates_path(), "/config/spillway/disks.json");
  ASSERT_EQ(::unsetenv("XDG_CONFIG_HOME"), 0);
  ASSERT_EQ(::setenv("HOME", "/home/me", 1), 0);
  EXPECT_EQ(default_disk_rates_path(), "/home/me/.config/spillway/disks.json");
}

}  // namespace
}  // namespace spillway::topology
