#pragma once

#include <cstdint>
#include <string>

namespace spillway::swap {

/// What the system says about a directory for spill files, before a file is made there.
struct DirectoryFacts {
  std::string trouble;       ///< Why the system tells nothing of it; empty: it does.
  std::string file_system;   ///< "ext4", "tmpfs", or the magic number in hex.
  std::uint64_t device = 0;  ///< Equal numbers share a disk.
};

DirectoryFacts inspect_directory(const std::string& path);

}  // namespace spillway::swap
