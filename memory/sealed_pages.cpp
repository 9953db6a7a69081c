#include "sealed_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "raw_calls.h"
#include "spillway/memory/frame_mapper.h"

namespace spillway::memory {
namespace {

constexpr int kWritable = PROT_READ | PROT_WRITE;

/// Writes to memory that nobody may access, as a debugger does. Zero or an errno. The file is
/// opened anew each time: a descriptor that is kept could be closed by the program, and a forked
/// child needs one of its own memory. The calls go by number, as the preload library replaces their
/// names.
int write_sealed(std::byte* to, const std::byte* from, std::size_t size) {
  const long file = syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC, 0);
  if (file < 0) return errno;
  std::size_t done = 0;
  int error = 0;
  while (done < size && error == 0) {
    const auto place = static_cast<long>(reinterpret_cast<std::uintptr_t>(to + done));
    const long moved = syscall(SYS_pwrite64, file, from + done, size - done, place);
    if (moved > 0) done += static_cast<std::size_t>(moved);
    if (moved == 0) error = EIO;
    if (moved < 0 && errno != EINTR) error = errno;
  }
  syscall(SYS_close, file);
  return error;
}

void protect(std::byte* first, std::size_t pages, int protection) {
  if (raw_mprotect(first, pages * kPageBytes, protection) != 0) {
    die_of_refusal("mprotect", first, errno);
  }
}

}  // namespace

void seal_pages(std::byte* first, std::size_t pages) { protect(first, pages, PROT_NONE); }

void make_pages_writable(std::byte* first, std::size_t pages) { protect(first, pages, kWritable); }

std::byte* stage_page() {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  std::byte* const whole = raw_mmap(nullptr, 2 * kPageBytes, kWritable, kFlags);
  if (whole == nullptr) return nullptr;
  // Aligned, the page moves in one piece and may be a huge one.
  const std::size_t excess = reinterpret_cast<std::uintptr_t>(whole) % kPageBytes;
  const std::size_t before = excess == 0 ? 0 : kPageBytes - excess;
  std::byte* const staged = whole + before;
  if (before > 0) raw_munmap(whole, before);
  raw_munmap(staged + kPageBytes, kPageBytes - before);
  raw_madvise(staged, kPageBytes, MADV_HUGEPAGE);
  return staged;
}

bool place_page(std::byte* page, std::byte* staged, bool write_protected) {
  if (write_protected && raw_mprotect(staged, kPageBytes, PROT_READ) != 0) return false;
  if (raw_mremap(staged, kPageBytes, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page) return true;
  int error = errno;
  if (error == EPERM || error == ENOSYS || error == EACCES) {
    error = write_sealed(page, staged, kPageBytes);
    if (error == 0 && raw_mprotect(page, kPageBytes, write_protected ? PROT_READ : kWritable) != 0)
      error = errno;
  }
  raw_munmap(staged, kPageBytes);
  errno = error;
  return error == 0;
}

}  // namespace spillway::memory
