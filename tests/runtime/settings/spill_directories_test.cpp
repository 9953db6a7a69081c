#include "spillway/runtime/settings/spill_directories.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "spillway/base/error.h"
#include "support/error_text.h"
#include "support/golden_part.h"
#include "support/temporary_directory.h"

namespace spillway::runtime {
namespace {

using testing::IsEmpty;

class ResolveSpillDirectories : public testing::Test {
 protected:
  ResolveSpillDirectories() {
    surroundings_.inspect = [this](const std::string& path) {
      const auto known = directories_.find(path);
      topology::Directory missing;
      missing.path = path;
      return known == directories_.end() ? missing : known->second;
    };
    surroundings_.candidates = {"/var/tmp", "/tmp"};
  }

  topology::Directory& add(const std::string& path, Bytes free) {
    topology::Directory& directory = directories_[path];
    directory.path = path;
    directory.exists = directory.is_directory = directory.is_writable = true;
    directory.filesystem = "ext4";
    directory.mount_point = path;
    directory.free = free;
    directory.device = topology::BlockDevice{"disk-of-" + path, {}, false};
    return directory;
  }

  ResolvedDirectories resolve(const std::string& nvme, Bytes budget = 1_GiB, unsigned sharers = 1) {
    Settings settings;
    if (!nvme.empty()) assign_setting(settings, "nvme", nvme, "test");
    return resolve_spill_directories(settings, budget, surroundings_, sharers);
  }

  std::string refusal(const std::string& nvme) {
    return error_text<ConfigError>([&] { resolve(nvme); });
  }

  void measured(const std::string& path, double read, double write, double both = 0.0) {
    topology::DiskRate rate;
    rate.directory = path;
    rate.read = TransferRate(read);
    rate.write = TransferRate(write);
    rate.both = TransferRate(both);
    surroundings_.rates.record(rate);
  }

  std::map<std::string, topology::Directory> directories_;
  DirectorySurroundings surroundings_;
};

TEST_F(ResolveSpillDirectories, TakesTheNamedOnesWithTheirLimits) {
  add("/a", 100_GiB);
  add("/b", 100_GiB);
  const auto resolved = resolve("/a:20GiB,/b");
  ASSERT_EQ(resolved.directories.size(), 2u);
  EXPECT_EQ(resolved.directories[0].limit, 20_GiB);
  EXPECT_EQ(resolved.directories[1].limit, 0_B);
  EXPECT_THAT(resolved.warnings, IsEmpty());
}

TEST_F(ResolveSpillDirectories, RefusesWhatCannotBeUsed) {
  GoldenPart golden;
  golden.add(refusal("/none"));
  add("/file", 1_GiB).is_directory = false;
  golden.add(refusal("/file"));
  add("/ro", 1_GiB).is_read_only = true;
  golden.add(refusal("/ro"));
  add("/locked", 1_GiB).is_writable = false;
  golden.add(refusal("/locked"));
  add("/full", 1_MiB);
  golden.add(refusal("/full"));
  golden.add(refusal("/none"));
  add("/tmp", 1_GiB);
  for (const char* of_colons : {"/tmp:foo", "/tmp:/var/tmp", "/tmp:1GiB:x", "/tmp:"})
    golden.add(refusal(of_colons));
  golden.add(refusal("/none:foo"));  // Nor is there a /none.
  add("/proc", 0_B).total = 0_B;
  golden.add(refusal("/proc"));
}

TEST_F(ResolveSpillDirectories, SharesRatesAmongTheRanksOfTheMachine) {
  add("/a", 100_GiB);
  measured("/a", 4e9, 2e9, 3e9);
  const auto resolved = resolve("/a", 1_GiB, 4);
  const auto rates = resolved.rates({});
  EXPECT_DOUBLE_EQ(rates.read.bytes_per_second(), 1e9);
  EXPECT_DOUBLE_EQ(rates.write.bytes_per_second(), 0.5e9);
  EXPECT_DOUBLE_EQ(rates.duplex_share, 0.5);
  EXPECT_THAT(resolved.warnings, IsEmpty());
  add("/unmeasured", 100_GiB);
  const profile::TransferRates guess;
  EXPECT_DOUBLE_EQ(resolve("/unmeasured", 1_GiB, 4).rates(guess).read.bytes_per_second(),
                   guess.read.bytes_per_second() / 4);
}

TEST_F(ResolveSpillDirectories, SharesRoomAmongTheRanksOfTheMachine) {
  GoldenPart golden;
  add("/a", 10_GiB);
  EXPECT_THAT(resolve("/a", 4_GiB, 2).warnings, IsEmpty());
  golden.add(resolve("/a", 4_GiB, 4).shortage);
  EXPECT_THAT(resolve("/a:4GiB", 4_GiB, 2).warnings, IsEmpty());
  golden.add(resolve("/a:4GiB", 1_GiB, 4).warnings);
}

TEST_F(ResolveSpillDirectories, PicksTheRoomiestCandidate) {
  add("/var/tmp", 10_GiB);
  add("/tmp", 20_GiB);
  EXPECT_EQ(resolve("").directories.at(0).facts.path, "/tmp");
}

TEST_F(ResolveSpillDirectories, DoesNotPickARamDisk) {
  add("/var/tmp", 10_GiB);
  add("/tmp", 20_GiB).is_ram_disk = true;
  EXPECT_EQ(resolve("").directories.at(0).facts.path, "/var/tmp");
}

TEST_F(ResolveSpillDirectories, SaysWhyNoCandidateFits) {
  GoldenPart golden;
  add("/tmp", 20_GiB).is_ram_disk = true;
  golden.add(refusal(""));
}

TEST_F(ResolveSpillDirectories, DescribesWhatWasChosen) {
  add("/a", 100_GiB);
  EXPECT_EQ(describe(resolve("/a:20GiB").directories.at(0)),
            "/a (ext4 on disk-of-/a), 100 GiB free, at most 20.0 GiB, not measured (spillway "
            "bench-io)");
  measured("/a", 3e9, 2.5e9);
  EXPECT_EQ(describe(resolve("/a").directories.at(0)),
            "/a (ext4 on disk-of-/a), 100 GiB free, measured: write 2.50 GB/s, read 3.00 GB/s");
}

TEST_F(ResolveSpillDirectories, WarnsOfANamedRamDisk) {
  GoldenPart golden;
  auto& directory = add("/dev/shm", 20_GiB);
  directory.is_ram_disk = true;
  directory.filesystem = "tmpfs";
  golden.add(resolve("/dev/shm").warnings);
}

TEST_F(ResolveSpillDirectories, WarnsOfSlowDisks) {
  GoldenPart golden;
  add("/spinning", 20_GiB).device->is_rotational = true;
  auto& network = add("/net", 20_GiB);
  network.is_network = true;
  network.filesystem = "nfs4";
  golden.add(resolve("/spinning,/net").warnings);
}

TEST_F(ResolveSpillDirectories, WarnsOfTooLittleSpace) {
  GoldenPart golden;
  add("/a", 1_GiB);
  golden.add(resolve("/a:2GiB", 4_GiB).warnings);
}

TEST_F(ResolveSpillDirectories, AddsUpMeasuredRatesOfDifferentDisks) {
  add("/a", 100_GiB);
  add("/b", 100_GiB);
  measured("/a", 3e9, 2e9);
  EXPECT_EQ(resolve("/a,/b").read_rate(), std::nullopt);
  measured("/b", 1e9, 1e9);
  EXPECT_EQ(resolve("/a,/b").read_rate(), TransferRate(4e9));
  EXPECT_EQ(resolve("/a,/b").write_rate(), TransferRate(3e9));
}

TEST_F(ResolveSpillDirectories, TellsWhatIsLeftOfTheRatesWhileBothDirectionsRun) {
  add("/a", 100_GiB);
  add("/b", 100_GiB);
  measured("/a", 3e9, 1e9, 2.4e9);
  EXPECT_DOUBLE_EQ(resolve("/a").duplex_share().value(), 0.6);
  measured("/b", 1e9, 1e9);
  EXPECT_EQ(resolve("/a,/b").duplex_share(), std::nullopt);
  measured("/b", 2e9, 2e9, 4e9);
  EXPECT_DOUBLE_EQ(resolve("/a,/b").duplex_share().value(), 0.8);
  measured("/b", 1e9, 1e9, 9e9);  // Noise: no more than both at full rate.
  EXPECT_DOUBLE_EQ(resolve("/b").duplex_share().value(), 1.0);
}

TEST_F(ResolveSpillDirectories, TellsWhatIsMeasuredAndWhatIsAssumed) {
  add("/a", 100_GiB);
  const profile::TransferRates otherwise{.read = TransferRate(7.0),
                                         .read_fixed_seconds = 3e-3,
                                         .interference_seconds_per_byte = 4e-11};
  EXPECT_EQ(resolve("/a").assumed(), "rates, duplex share, fixed costs, slowdown of operators");
  EXPECT_EQ(resolve("/a").rates(otherwise).read.bytes_per_second(), 7.0);
  EXPECT_EQ(resolve("/a").rates(otherwise).interference_seconds_per_byte, 4e-11);
  add("/b", 100_GiB);
  measured("/a", 3e9, 1e9, 2.4e9);
  measured("/b", 3e9, 1e9, 2.4e9);
  topology::DiskRate slow = *surroundings_.rates.find("/a", "");
  slow.write_fixed_seconds = 1e-3;
  slow.read_fixed_seconds = 0.0;
  slow.interference_seconds_per_byte = 9e-11;
  slow.checksum = TransferRate(8e9);
  surroundings_.rates.record(slow);
  EXPECT_EQ(resolve("/a").assumed(), "");
  EXPECT_EQ(resolve("/a").rates(otherwise).read_fixed_seconds, 0.0);
  EXPECT_EQ(resolve("/a,/b").assumed(), "fixed costs, slowdown of operators");
  EXPECT_EQ(resolve("/a,/b").rates(otherwise).interference_seconds_per_byte, 4e-11);
  slow.directory = "/b";
  slow.interference_seconds_per_byte = 2e-11;
  surroundings_.rates.record(slow);
  EXPECT_EQ(resolve("/a,/b").rates(otherwise).interference_seconds_per_byte, 9e-11);
  EXPECT_EQ(resolve("/b").checksum_rate(), TransferRate(8e9));
  EXPECT_DOUBLE_EQ(checksum_seconds_per_byte(TransferRate(8e9), 4), 1.0 / 32e9);
}

TEST_F(ResolveSpillDirectories, CountsOneDiskOnce) {
  add("/a", 100_GiB).device->name = "nvme0n1";
  add("/b", 100_GiB).device->name = "nvme0n1";
  measured("/a", 3e9, 2e9);
  measured("/b", 3e9, 2e9);
  EXPECT_EQ(resolve("/a,/b").read_rate(), TransferRate(3e9));
}

TEST_F(ResolveSpillDirectories, TellsWarningsOfEachDirectoryFromThoseOfTheWhole) {
  GoldenPart golden;
  add("/a", 1_GiB);
  add("/spinning", 1_GiB).device->is_rotational = true;
  surroundings_.warnings = {"no rates"};
  const auto resolved = resolve("/a,/spinning", 4_GiB);
  EXPECT_THAT(resolved.directories[0].warnings, IsEmpty());
  golden.add(resolved.directories[1].warnings);
  golden.add(resolved.shortage);
  golden.add(resolved.warnings);
}

// The warning used to come from here and from the store.
TEST(SpillDirectories, AreCalledARamDiskOnce) {
  const std::string memory = "/dev/shm";
  if (!topology::inspect_directory(memory).is_ram_disk ||
      !topology::inspect_directory(memory).is_writable)
    GTEST_SKIP() << memory << " is no RAM disk for this user";
  Settings settings;
  assign_setting(settings, "nvme", memory + ":8MiB", "test");
  std::vector<std::string> said =
      resolve_spill_directories(settings, 2_MiB, surroundings_without_rates()).warnings;
  swap::SpillStoreOptions options;
  options.directories = settings.nvme;
  const auto opened = swap::make_spill_store(options);
  said.insert(said.end(), opened.warnings.begin(), opened.warnings.end());
  EXPECT_EQ(std::count_if(said.begin(), said.end(),
                          [](const std::string& each) {
                            return each.find("RAM disk") != std::string::npos ||
                                   each.find("tmpfs") != std::string::npos;
                          }),
            1)
      << testing::PrintToString(said);
}

TEST_F(ResolveSpillDirectories, CountsTheMemoryBeforeThem) {
  add("/a", 1_GiB);
  EXPECT_NE(resolve("/a", 2_GiB).shortage, "");
  EXPECT_EQ(resolve("ram:1GiB,/a", 2_GiB).shortage, "");
  add("/tmp", 9_GiB);
  const ResolvedDirectories picked = resolve("ram:1GiB");
  ASSERT_EQ(picked.directories.size(), 1u);
  EXPECT_EQ(picked.directories[0].facts.path, "/tmp");
}

TEST_F(ResolveSpillDirectories, HaveNoPlaceBeforeAStoreInMemory) {
  GoldenPart golden;
  Settings settings;
  assign_setting(settings, "store", "ram", "test");
  assign_setting(settings, "nvme", "ram:64MiB", "test");
  golden.add(
      error_text<ConfigError>([&] { resolve_spill_directories(settings, 1_GiB, surroundings_); }));
}

TEST_F(ResolveSpillDirectories, WarnsOfANamedFileThatSaysNothingOfThem) {
  GoldenPart golden;
  add("/a", 100_GiB);
  add("/b", 100_GiB);
  measured("/a", 0.0, 2e9);
  Settings settings;
  assign_setting(settings, "nvme", "/a,/b", "test");
  const auto warnings = [&] {
    return resolve_spill_directories(settings, 1_GiB, surroundings_).warnings;
  };
  EXPECT_THAT(warnings(), IsEmpty());  // Nobody named the file of this machine.
  settings.rates = "disks.json";
  golden.add(warnings());
  measured("/a", 3e9, 2e9);
  measured("/b", 3e9, 2e9);
  EXPECT_THAT(warnings(), IsEmpty());
}

/// A user whose folder for settings is a new, empty one.
class RealSurroundings : public testing::Test {
 protected:
  RealSurroundings() { ::setenv("XDG_CONFIG_HOME", folder_.c_str(), 1); }
  ~RealSurroundings() override { ::unsetenv("XDG_CONFIG_HOME"); }

  std::string refusal(const std::string& rates) {
    Settings settings;
    settings.rates = rates;
    return error_text<IoError>([&] { real_surroundings(settings); });
  }

  const TemporaryDirectory directory_;
  const std::string& folder_ = directory_.path();
};

TEST_F(RealSurroundings, DoWithoutAFileInTheDefaultPlace) {
  const auto surroundings = real_surroundings({});
  EXPECT_TRUE(surroundings.rates.all().empty());
  EXPECT_THAT(surroundings.warnings, IsEmpty());
}

TEST_F(RealSurroundings, WarnWhenTheDefaultFileCannotBeRead) {
  GoldenPart golden;
  std::filesystem::create_directories(folder_ + "/spillway/disks.json");
  const auto surroundings = real_surroundings({});
  EXPECT_TRUE(surroundings.rates.all().empty());
  golden.add(surroundings.warnings);
}

TEST_F(RealSurroundings, InsistOnAFileThatTheUserNamed) {
  GoldenPart golden;
  golden.add(refusal(folder_ + "/none.json"));
  golden.add(refusal(folder_));
  topology::DiskRates().save(folder_ + "/disks.json");
  EXPECT_EQ(refusal(folder_ + "/disks.json"), "accepted");
}

TEST_F(ResolveSpillDirectories, NeedsNoneForTheRamStore) {
  Settings settings;
  settings.store = swap::StoreKind::kRam;
  EXPECT_THAT(resolve_spill_directories(settings, 1_GiB, surroundings_).directories, IsEmpty());
}

}  // namespace
}  // namespace spillway::runtime
