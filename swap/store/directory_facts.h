#pragma once

#include <cstdint>
#include <string>

#include "spillway/base/bytes.h"

namespace spillway::swap {

/// What the system says about a directory for spill files, before a file is made there.
struct DirectoryFacts {
  std::string trouble;      ///< Why it cannot be used (missing, not writable); empty: it can.
  std::string file_system;  ///< "ext4", "tmpfs", or the magic number in hex.
  bool is_memory = false;   ///< Its files live in RAM: spilling there frees nothing.
  bool is_network = false;
  Bytes free;                ///< For a user without privilege.
  std::uint64_t device = 0;  ///< Equal numbers share a disk.
};

DirectoryFacts inspect_directory(const std::string& path);

}  // namespace spillway::swap
