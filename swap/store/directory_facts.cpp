#include "store/directory_facts.h"

#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "spillway/base/error.h"

namespace spillway::swap {
namespace {

enum class Medium { kDisk, kMemory, kNetwork };

struct KnownFileSystem {
  std::uint32_t magic;
  const char* name;
  Medium medium;
};

// Magic numbers from linux/magic.h and statfs(2); some are in no header.
constexpr std::array<KnownFileSystem, 17> kKnownFileSystems{{
    {0xEF53, "ext4", Medium::kDisk},
    {0x58465342, "xfs", Medium::kDisk},
    {0x9123683E, "btrfs", Medium::kDisk},
    {0xF2F52010, "f2fs", Medium::kDisk},
    {0x2FC12FC1, "zfs", Medium::kDisk},
    {0xCA451A4E, "bcachefs", Medium::kDisk},
    {0x794C7630, "overlayfs", Medium::kDisk},
    {0x4D44, "vfat", Medium::kDisk},
    {0x01021994, "tmpfs", Medium::kMemory},
    {0x858458F6, "ramfs", Medium::kMemory},
    {0x958458F6, "hugetlbfs", Medium::kMemory},
    {0x6969, "nfs", Medium::kNetwork},
    {0xFF534D42, "cifs", Medium::kNetwork},
    {0xFE534D42, "smb2", Medium::kNetwork},
    {0x0BD00BD0, "lustre", Medium::kNetwork},
    {0x47504653, "gpfs", Medium::kNetwork},
    {0x00C36400, "ceph", Medium::kNetwork},
}};

void name_file_system(std::uint32_t magic, DirectoryFacts& facts) {
  for (const KnownFileSystem& known : kKnownFileSystems) {
    if (known.magic != magic) continue;
    facts.file_system = known.name;
    facts.is_memory = known.medium == Medium::kMemory;
    facts.is_network = known.medium == Medium::kNetwork;
    return;
  }
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%x", magic);
  facts.file_system = text.data();
}

}  // namespace

DirectoryFacts inspect_directory(const std::string& path) {
  DirectoryFacts facts;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    facts.trouble = errno == ENOENT
                        ? message("{} does not exist (create it, or name another directory)", path)
                        : message("{} cannot be used: {}", path, std::strerror(errno));
    return facts;
  }
  if (!S_ISDIR(status.st_mode)) {
    facts.trouble = message("{} is not a directory", path);
    return facts;
  }
  if (::access(path.c_str(), W_OK | X_OK) != 0) {
    facts.trouble = message("{} is not writable: {}", path, std::strerror(errno));
    return facts;
  }
  facts.device = status.st_dev;
  struct statfs system {};
  if (::statfs(path.c_str(), &system) != 0) {
    facts.trouble = message("{} cannot be used: {}", path, std::strerror(errno));
    return facts;
  }
  name_file_system(static_cast<std::uint32_t>(system.f_type), facts);
  facts.free = Bytes(std::uint64_t{system.f_bavail} * static_cast<std::uint64_t>(system.f_bsize));
  return facts;
}

}  // namespace spillway::swap
