#pragma once

#include <string>

#include "store/file_descriptor.h"

namespace spillway::swap {

/// A file without a name, readable by its owner only; it is gone when its last user is, whatever
/// the way it went.
struct UnlinkedFile {
  FileDescriptor descriptor;
  bool is_direct = false;    ///< Transfers pass the page cache by.
  std::string why_buffered;  ///< The reason, when `is_direct` is false.
};

/// Makes one in `directory`, and tries a write and a read, so that refusals show here rather than
/// in the middle of a run. Throws IoError ("No space left in DIR …" when the disk is full).
UnlinkedFile open_unlinked_file(const std::string& directory);

}  // namespace spillway::swap
