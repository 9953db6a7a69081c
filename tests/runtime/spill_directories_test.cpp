#include "spillway/runtime/spill_directories.h"

#include <gmock/gmock.h>

#include <map>

#include "spillway/base/error.h"

namespace spillway::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
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
    directory.device = topology::BlockDevice{"disk-of-" + path, {}, false, {}};
    return directory;
  }

  ResolvedDirectories resolve(const std::string& nvme, Bytes budget = 1_GiB) {
    Settings settings;
    if (!nvme.empty()) assign_setting(settings, "nvme", nvme, "test");
    return resolve_spill_directories(settings, budget, surroundings_);
  }

  std::string refusal(const std::string& nvme) {
    try {
      resolve(nvme);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }

  void measured(const std::string& path, double read, double write) {
    topology::DiskRate rate;
    rate.directory = path;
    rate.read_bytes_per_second = read;
    rate.write_bytes_per_second = write;
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
  EXPECT_EQ(resolve("/a,/b").read_bytes_per_second(), std::nullopt);
  measured("/b", 1e9, 1e9);
  EXPECT_EQ(resolve("/a,/b").read_bytes_per_second(), 4e9);
  EXPECT_EQ(resolve("/a,/b").write_bytes_per_second(), 3e9);
}

TEST_F(ResolveSpillDirectories, CountsOneDiskOnce) {
  add("/a", 100_GiB).device->name = "nvme0n1";
  add("/b", 100_GiB).device->name = "nvme0n1";
  measured("/a", 3e9, 2e9);
  measured("/b", 3e9, 2e9);
  EXPECT_EQ(resolve("/a,/b").read_bytes_per_second(), 3e9);
}

TEST_F(ResolveSpillDirectories, NeedsNoneForTheRamStore) {
  Settings settings;
  settings.store = swap::StoreKind::kRam;
  EXPECT_THAT(resolve_spill_directories(settings, 1_GiB, surroundings_).directories, IsEmpty());
}

}  // namespace
}  // namespace spillway::runtime
