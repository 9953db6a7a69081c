#include "spillway/base/file_systems.h"

#include <algorithm>
#include <array>

namespace spillway {
namespace {

// Numbers from linux/magic.h and statfs(2); some are in no header. Of several names with one number
// the first is the usual one.
constexpr std::array<FileSystem, 27> kFileSystems{{
    {"ext4", 0xEF53, Medium::kDisk},
    {"ext3", 0xEF53, Medium::kDisk},
    {"ext2", 0xEF53, Medium::kDisk},
    {"xfs", 0x58465342, Medium::kDisk},
    {"btrfs", 0x9123683E, Medium::kDisk},
    {"f2fs", 0xF2F52010, Medium::kDisk},
    {"zfs", 0x2FC12FC1, Medium::kDisk},
    {"bcachefs", 0xCA451A4E, Medium::kDisk},
    {"overlay", 0x794C7630, Medium::kDisk},
    {"vfat", 0x4D44, Medium::kDisk},
    {"fuse", 0x65735546, Medium::kDisk},
    {"tmpfs", 0x01021994, Medium::kMemory},
    {"devtmpfs", 0x01021994, Medium::kMemory},
    {"ramfs", 0x858458F6, Medium::kMemory},
    {"hugetlbfs", 0x958458F6, Medium::kMemory},
    {"nfs", 0x6969, Medium::kNetwork},
    {"nfs4", 0x6969, Medium::kNetwork},
    {"cifs", 0xFF534D42, Medium::kNetwork},
    {"smb3", 0xFE534D42, Medium::kNetwork},
    {"9p", 0x01021997, Medium::kNetwork},
    {"lustre", 0x0BD00BD0, Medium::kNetwork},
    {"gpfs", 0x47504653, Medium::kNetwork},
    {"ceph", 0x00C36400, Medium::kNetwork},
    {"beegfs", 0x19830326, Medium::kNetwork},
    {"afs", 0x5346414F, Medium::kNetwork},
    {"fuse.sshfs", 0x65735546, Medium::kNetwork},
    {"fuse.glusterfs", 0x65735546, Medium::kNetwork},
}};

template <typename Condition>
const FileSystem* find_if(const Condition& condition) {
  const auto found = std::find_if(kFileSystems.begin(), kFileSystems.end(), condition);
  return found == kFileSystems.end() ? nullptr : &*found;
}

}  // namespace

const FileSystem* find_file_system(std::uint32_t magic) {
  return find_if([&](const FileSystem& each) { return each.magic == magic; });
}

const FileSystem* find_file_system(std::string_view name) {
  return find_if([&](const FileSystem& each) { return each.name == name; });
}

}  // namespace spillway
