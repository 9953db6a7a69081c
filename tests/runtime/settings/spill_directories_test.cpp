#include "spillway/runtime/settings/spill_directories.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "spillway/base/error.h"
#include "support/temporary_directory.h"

namespace spillway::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

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
    try {
      resolve(nvme);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
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
  EXPECT_THAT(refusal("/none"), HasSubstr("/none does not exist"));
  add("/file", 1_GiB).is_directory = false;
  EXPECT_THAT(refusal("/file"), HasSubstr("is not a directory"));
  add("/ro", 1_GiB).is_read_only = true;
  EXPECT_THAT(refusal("/ro"), HasSubstr("mounted read-only"));
  add("/locked", 1_GiB).is_writable = false;
  EXPECT_THAT(refusal("/locked"), HasSubstr("not writable"));
  add("/full", 1_MiB);
  EXPECT_THAT(refusal("/full"), HasSubstr("/full is full: No space"));
  EXPECT_THAT(refusal("/none"), Not(HasSubstr("colon")));
  add("/tmp", 1_GiB);
  for (const char* of_colons : {"/tmp:foo", "/tmp:/var/tmp", "/tmp:1GiB:x", "/tmp:"})
    EXPECT_THAT(refusal(of_colons),
                AllOf(HasSubstr(std::string(of_colons) + " does not exist"),
                      HasSubstr("commas separate directories, and a colon stands before a size "
                                "alone: /tmp:8GiB")));
  EXPECT_THAT(refusal("/none:foo"), Not(HasSubstr("colon")));  // Nor is there a /none.
  add("/proc", 0_B).total = 0_B;
  EXPECT_THAT(refusal("/proc"), HasSubstr("holds no files"));
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
  add("/a", 10_GiB);
  EXPECT_THAT(resolve("/a", 4_GiB, 2).warnings, IsEmpty());
  EXPECT_THAT(resolve("/a", 4_GiB, 4).shortage,
              AllOf(HasSubstr("only 2.50 GiB can be spilled"), HasSubstr("by each of 4 ranks")));
  EXPECT_THAT(resolve("/a:4GiB", 4_GiB, 2).warnings, IsEmpty());
  EXPECT_THAT(resolve("/a:4GiB", 1_GiB, 4).warnings,
              ElementsAre(HasSubstr("10.0 GiB free, less than the 16.0 GiB allowed there (4.00 GiB "
                                    "to each of 4 ranks)")));
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
  add("/tmp", 20_GiB).is_ram_disk = true;
  EXPECT_THAT(refusal(""),
              testing::AllOf(HasSubstr("/var/tmp does not exist"), HasSubstr("/tmp is a RAM disk"),
                             HasSubstr("--nvme DIR")));
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
  auto& directory = add("/dev/shm", 20_GiB);
  directory.is_ram_disk = true;
  directory.filesystem = "tmpfs";
  EXPECT_THAT(resolve("/dev/shm").warnings, ElementsAre(HasSubstr("RAM disk (tmpfs)")));
}

TEST_F(ResolveSpillDirectories, WarnsOfSlowDisks) {
  add("/spinning", 20_GiB).device->is_rotational = true;
  auto& network = add("/net", 20_GiB);
  network.is_network = true;
  network.filesystem = "nfs4";
  EXPECT_THAT(resolve("/spinning,/net").warnings,
              ElementsAre(HasSubstr("rotates"), HasSubstr("nfs4")));
}

TEST_F(ResolveSpillDirectories, WarnsOfTooLittleSpace) {
  add("/a", 1_GiB);
  EXPECT_THAT(resolve("/a:2GiB", 4_GiB).warnings,
              ElementsAre(HasSubstr("1.00 GiB free"), HasSubstr("only 1.00 GiB can be spilled")));
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
  add("/a", 1_GiB);
  add("/spinning", 1_GiB).device->is_rotational = true;
  surroundings_.warnings = {"no rates"};
  const auto resolved = resolve("/a,/spinning", 4_GiB);
  EXPECT_THAT(resolved.directories[0].warnings, IsEmpty());
  EXPECT_THAT(resolved.directories[1].warnings, ElementsAre(HasSubstr("rotates")));
  EXPECT_THAT(resolved.shortage, HasSubstr("only 2.00 GiB can be spilled"));
  EXPECT_THAT(resolved.warnings, ElementsAre("no rates", HasSubstr("rotates"), resolved.shortage));
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
  Settings settings;
  assign_setting(settings, "store", "ram", "test");
  assign_setting(settings, "nvme", "ram:64MiB", "test");
  try {
    resolve_spill_directories(settings, 1_GiB, surroundings_);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--store ram keeps everything in memory, and has no place "
                                        "for 64.0 MiB before the disks"));
  }
}

TEST_F(ResolveSpillDirectories, WarnsOfANamedFileThatSaysNothingOfThem) {
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
  EXPECT_THAT(warnings(),
              ElementsAre(HasSubstr("disks.json has no rates for writing and reading in /a: plans "
                                    "start from guesses (measure them with: spillway bench-io "
                                    "--rates disks.json /a)"),
                          HasSubstr("reading in /b")));
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
    try {
      real_surroundings(settings);
    } catch (const IoError& error) {
      return error.what();
    }
    return "accepted";
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
  std::filesystem::create_directories(folder_ + "/spillway/disks.json");
  const auto surroundings = real_surroundings({});
  EXPECT_TRUE(surroundings.rates.all().empty());
  EXPECT_THAT(surroundings.warnings,
              ElementsAre(testing::AllOf(HasSubstr("disks.json"), HasSubstr("it is a folder"))));
}

TEST_F(RealSurroundings, InsistOnAFileThatTheUserNamed) {
  EXPECT_THAT(refusal(folder_ + "/none.json"),
              testing::AllOf(HasSubstr(folder_ + "/none.json does not exist"),
                             HasSubstr("spillway bench-io --rates")));
  EXPECT_THAT(refusal(folder_), testing::AllOf(HasSubstr(folder_), HasSubstr("it is a folder")));
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
