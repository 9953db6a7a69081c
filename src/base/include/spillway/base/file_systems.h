#pragma once

#include <cstdint>
#include <string_view>

namespace spillway {

/// Where the files of a file system lie in the end.
enum class Medium : std::uint8_t { kDisk, kMemory, kNetwork };

/// A kind of file system that is known by name or by number.
struct FileSystem {
  std::string_view name;    ///< As in /proc/self/mountinfo.
  std::uint32_t magic = 0;  ///< As statfs(2) tells it; several names may share one.
  Medium medium = Medium::kDisk;
};

/// The kind with that number or name, or null for one that is not in the table.
const FileSystem* find_file_system(std::uint32_t magic);
const FileSystem* find_file_system(std::string_view name);

}  // namespace spillway
