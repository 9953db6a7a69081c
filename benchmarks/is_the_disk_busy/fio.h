#pragma once

#include <string>

#include "spillway/base/bytes.h"

namespace spillway::benchmarks {

/// The work of one pass: the first `block` bytes of every 2 MiB of the file.
struct Load {
  Bytes file_size;
  Bytes block;
  std::size_t depth = 0;
};

struct Rates {
  double write_gb_per_s = 0.0;
  double read_gb_per_s = 0.0;
};

/// Runs fio with io_uring and direct I/O on `file`. `pattern` is "write", "read" or "rw". Throws
/// IoError when fio is missing or fails.
Rates run_fio(const std::string& file, const std::string& pattern, const Load& load);

}  // namespace spillway::benchmarks
