#pragma once

#include <optional>
#include <string>

#include "spillway/base/bytes.h"
#include "spillway/topology/machine.h"

namespace spillway::topology {

/// A disk as the kernel describes it.
struct BlockDevice {
  std::string name;  ///< "nvme0n1", "sda", "dm-0"
  std::optional<std::string> model;
  std::optional<bool> is_rotational;
};

/// File system and device under a directory.
struct Directory {
  std::string path;   ///< Absolute, without symbolic links when it exists.
  std::string error;  ///< Why it could not be looked at: "Permission denied"; empty when it could.
  bool exists = false;
  bool is_directory = false;
  bool is_writable = false;
  std::optional<std::string> filesystem;  ///< "ext4", "xfs", "tmpfs", …
  std::optional<std::string> mount_point;
  bool is_ram_disk = false;
  bool is_network = false;
  bool is_read_only = false;
  std::optional<Bytes> free;  ///< For this user.
  std::optional<Bytes> total;
  std::optional<BlockDevice> device;
};

/// Looks at a directory without writing to it. Any thread.
Directory inspect_directory(const std::string& path, const Roots& roots = {});

/// Why this user can keep no files there, as the rest of a sentence that begins with the directory:
/// "is mounted read-only". Empty when it can be used. Room is not looked at.
std::string reason_against(const Directory& directory);

}  // namespace spillway::topology
