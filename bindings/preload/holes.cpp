#include "holes.h"

#include "raw_files.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

constexpr size_t kLeast = size_t{64} << 10;  // Bytes that are worth four system calls.

/// In what is there already; the file stays as long as it is.
bool punch(int file, off_t from, off_t size) {
  return raw::call(SYS_fallocate, file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, size) ==
         0;
}

}  // namespace

size_t hole_at_end(const void* memory, size_t size) {
  const SpillwayHooks* hooks = size < kLeast ? nullptr : registered_hooks();
  if (hooks == nullptr || hooks->absent_bytes == nullptr) return 0;
  const size_t hole = hooks->absent_bytes(memory, size);
  return hole < kLeast ? 0 : hole;
}

bool make_hole(int file, size_t size) {
  struct stat facts {};
  if (raw::call(SYS_fstat, file, &facts) != 0 || !S_ISREG(facts.st_mode)) return false;
  const long flags = raw::value(SYS_fcntl, file, F_GETFL);
  const off_t from = raw::value(SYS_lseek, file, 0, SEEK_CUR);
  if (flags < 0 || (flags & O_APPEND) != 0 || from < 0) return false;
  const off_t end = from + static_cast<off_t>(size);
  if (from < facts.st_size && !punch(file, from, static_cast<off_t>(size))) return false;
  if (end > facts.st_size && raw::call(SYS_ftruncate, file, end) != 0) return false;
  return raw::value(SYS_lseek, file, end, SEEK_SET) == end;
}

}  // namespace spillway::preload
