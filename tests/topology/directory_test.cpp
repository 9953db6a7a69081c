#include "spillway/topology/directory.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "fake_tree.h"
#include "support/golden_part.h"

namespace spillway::topology {
namespace {

namespace fs = std::filesystem;

class InspectDirectory : public testing::Test {
 protected:
  InspectDirectory() {
    path_ = fs::canonical(tree_.root()).string() + "/data";
    fs::create_directory(path_);
  }
  void mount(const std::string& number, const std::string& options, const std::string& type,
             const std::string& source) {
    tree_.write("/proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 " + number +
                                            " / " + path_ + " " + options + " - " + type + " " +
                                            source + " rw\n");
  }
  Directory inspect() { return inspect_directory(path_, {tree_.root(), ""}); }

  FakeTree tree_;
  std::string path_;
};

TEST_F(InspectDirectory, KnowsAMissingOne) {
  const Directory directory = inspect_directory(path_ + "/nowhere", {tree_.root(), ""});
  EXPECT_FALSE(directory.exists);
  EXPECT_FALSE(directory.is_directory);
  EXPECT_FALSE(directory.is_writable);
}

TEST_F(InspectDirectory, TellsFilesFromDirectories) {
  tree_.write("/data/file", "x");
  const Directory directory = inspect_directory(path_ + "/file", {tree_.root(), ""});
  EXPECT_TRUE(directory.exists);
  EXPECT_FALSE(directory.is_directory);
}

TEST_F(InspectDirectory, TellsSpaceAndFollowsLinks) {
  fs::create_symlink(path_, tree_.root() + "/link");
  const Directory directory = inspect_directory(tree_.root() + "/link", {tree_.root(), ""});
  EXPECT_EQ(directory.path, path_);
  EXPECT_TRUE(directory.is_writable);
  EXPECT_GT(directory.total, 0_B);
}

TEST_F(InspectDirectory, FindsTheDiskOfAPartition) {
  mount("259:2", "rw", "xfs", "/dev/nvme0n1p2");
  const std::string disk = "/sys/devices/pci0/nvme0n1";
  tree_.write(disk + "/device/model", "FAST DISK 2TB      \n");
  tree_.write(disk + "/queue/rotational", "0\n");
  tree_.write(disk + "/nvme0n1p2/partition", "2\n");
  tree_.link("/sys/dev/block/259:2", "../../devices/pci0/nvme0n1/nvme0n1p2");
  const Directory directory = inspect();
  EXPECT_EQ(directory.filesystem, "xfs");
  EXPECT_EQ(directory.mount_point, path_);
  ASSERT_TRUE(directory.device.has_value());
  EXPECT_EQ(directory.device->name, "nvme0n1");
  EXPECT_EQ(directory.device->model, "FAST DISK 2TB");
  EXPECT_EQ(directory.device->is_rotational, false);
}

TEST_F(InspectDirectory, FindsTheDiskBehindAFileSystemWithItsOwnNumber) {
  mount("0:40", "rw", "btrfs", "/dev/sdb");
  tree_.write("/sys/devices/sdb/queue/rotational", "1\n");
  tree_.link("/sys/class/block/sdb", "../../devices/sdb");
  const Directory directory = inspect();
  ASSERT_TRUE(directory.device.has_value());
  EXPECT_EQ(directory.device->name, "sdb");
  EXPECT_EQ(directory.device->is_rotational, true);
}

TEST_F(InspectDirectory, DoesNotBelieveAVirtualDiskThatItRotates) {
  mount("254:0", "rw", "ext4", "/dev/vda");
  tree_.write("/sys/devices/virtio0/vda/queue/rotational", "1\n");
  tree_.link("/sys/dev/block/254:0", "../../devices/virtio0/vda");
  const Directory directory = inspect();
  ASSERT_TRUE(directory.device.has_value());
  EXPECT_EQ(directory.device->name, "vda");
  EXPECT_EQ(directory.device->is_rotational, std::nullopt);
}

TEST_F(InspectDirectory, NamesTheModelBelowAMappedVolume) {
  mount("253:0", "rw", "ext4", "/dev/mapper/home");
  tree_.write("/sys/devices/dm-0/queue/rotational", "0\n");
  tree_.write("/sys/devices/nvme1n1/device/model", "LOWER DISK\n");
  tree_.write("/sys/devices/nvme1n1/nvme1n1p1/partition", "1\n");
  tree_.link("/sys/devices/dm-0/slaves/nvme1n1p1", "../../nvme1n1/nvme1n1p1");
  tree_.link("/sys/dev/block/253:0", "../../devices/dm-0");
  const Directory directory = inspect();
  ASSERT_TRUE(directory.device.has_value());
  EXPECT_EQ(directory.device->name, "dm-0");
  EXPECT_EQ(directory.device->model, "LOWER DISK");
}

TEST_F(InspectDirectory, RecognisesARamDisk) {
  mount("0:50", "rw", "tmpfs", "tmpfs");
  const Directory directory = inspect();
  EXPECT_TRUE(directory.is_ram_disk);
  EXPECT_FALSE(directory.device.has_value());
}

TEST_F(InspectDirectory, AsksTheKernelWhereNoMountsAreListed) {
  ASSERT_FALSE(fs::exists(tree_.root() + "/proc/self/mountinfo"));
  const Directory listed = inspect_directory(path_);
  const Directory asked = inspect();
  EXPECT_EQ(asked.is_ram_disk, listed.is_ram_disk);
  EXPECT_EQ(asked.is_network, listed.is_network);
  EXPECT_EQ(inspect_directory("/dev/shm", {tree_.root(), ""}).is_ram_disk,
            inspect_directory("/dev/shm").is_ram_disk);
}

TEST_F(InspectDirectory, RecognisesNetworkAndReadOnlyMounts) {
  mount("0:51", "ro,noatime", "nfs4", "server:/export");
  const Directory directory = inspect();
  EXPECT_TRUE(directory.is_network);
  EXPECT_TRUE(directory.is_read_only);
}

TEST_F(InspectDirectory, TakesTheLatestOfSeveralMountsOnOnePoint) {
  tree_.write("/proc/self/mountinfo", "1 0 8:1 / " + path_ + " rw - ext4 /dev/sda1 rw\n" +
                                          "2 1 0:9 / " + path_ + " rw - tmpfs tmpfs rw\n");
  EXPECT_TRUE(inspect().is_ram_disk);
}

TEST_F(InspectDirectory, ReadsMountPointsWithBlanks) {
  path_ = fs::canonical(tree_.root()).string() + "/my data";
  fs::create_directory(path_);
  std::string escaped = path_;
  escaped.replace(escaped.find(' '), 1, "\\040");
  tree_.write("/proc/self/mountinfo", "1 0 0:9 / " + escaped + " rw - tmpfs tmpfs rw\n");
  EXPECT_EQ(inspect().mount_point, path_);
}

TEST_F(InspectDirectory, DoesNotTakeALongerNameForAFolderBelow) {
  tree_.write("/proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:9 / " +
                                          path_.substr(0, path_.size() - 1) +
                                          " rw - tmpfs tmpfs rw\n");
  EXPECT_EQ(inspect().mount_point, "/");
}

Directory usable() {
  Directory directory;
  directory.exists = directory.is_directory = directory.is_writable = true;
  directory.total = 100_GiB;
  return directory;
}

TEST(ReasonAgainst, NamesTheFirstThingThatIsInTheWay) {
  GoldenPart golden;
  EXPECT_EQ(reason_against(usable()), "");
  golden.add(reason_against({}));
  Directory directory = usable();
  directory.total = 0_B;
  golden.add(reason_against(directory));
  directory.is_writable = false;
  golden.add(reason_against(directory));
  directory.is_read_only = true;
  golden.add(reason_against(directory));
  directory.is_directory = false;
  golden.add(reason_against(directory));
  directory.error = "Permission denied";
  golden.add(reason_against(directory));
}

TEST(ReasonAgainst, IsEmptyForATemporaryFolder) {
  FakeTree tree;
  EXPECT_EQ(reason_against(inspect_directory(tree.root())), "");
  tree.write("/plain", "text");
  GoldenPart golden;
  golden.add(reason_against(inspect_directory(tree.root() + "/plain")));
  golden.add(reason_against(inspect_directory(tree.root() + "/plain/below")));
}

}  // namespace
}  // namespace spillway::topology
