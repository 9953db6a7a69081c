#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstddef>

#include "spillway/swap/spill_store.h"

namespace spillway::swap {

/// What to do after the system moved some of the bytes that a transfer still lacks.
struct Progress {
  std::size_t done = 0;
  int error = 0;  ///< 0: go on unless `done` is the whole size.
};

/// `result` is what pread, pwrite or a completion returned: bytes, or a negative errno value.
/// A short transfer goes on at the last aligned byte, for direct I/O takes no other; one without
/// any progress would go on for ever and is an error: the end of the file, or of the disk.
inline Progress advance(Direction direction, std::size_t done, ssize_t result, std::size_t size) {
  if (result == -EINTR) return {done, 0};
  if (result < 0) return {done, static_cast<int>(-result)};
  std::size_t moved = done + static_cast<std::size_t>(result);
  if (moved > size) return {done, EIO};
  if (moved < size) moved -= moved % kTransferAlignment;
  if (moved == done) return {done, direction == Direction::kWrite ? ENOSPC : ENODATA};
  return {moved, 0};
}

/// Calls `operation(done)` until all of `size` has moved. Returns 0 or an errno value.
template <typename Operation>
int move_whole(Direction direction, std::size_t size, Operation&& operation) {
  Progress progress;
  while (progress.error == 0 && progress.done < size)
    progress = advance(direction, progress.done, operation(progress.done), size);
  return progress.error;
}

}  // namespace spillway::swap
