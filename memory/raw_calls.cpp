#include "raw_calls.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "spillway/base/error.h"
#include "spillway/base/own_descriptors.h"
#include "spillway/memory/frame_mapper.h"
#include "spillway/memory/kernel_refusal.h"
#include "spillway/memory/own_limits.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace spillway::memory {
namespace {

std::byte* address_of(long result) {
  return result == -1 ? nullptr : reinterpret_cast<std::byte*>(result);
}

/// The result of `call`, which may be refused for a limit that the program has set for itself, and
/// which it has not set for us.
template <typename Call>
long past_own_limits(std::size_t size, const Call& call) {
  const long result = call();
  return result == -1 && errno == ENOMEM && raise_own_limits(size) ? call() : result;
}

// For kernels before 5.14. An atomic addition of nothing is a write that loses no other write.
void populate_by_touch(std::byte* address, std::size_t size) {
  const auto step = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t offset = 0; offset < size; offset += step) {
    __atomic_fetch_add(reinterpret_cast<unsigned char*>(address + offset), 0, __ATOMIC_RELAXED);
  }
}

}  // namespace

std::byte* raw_mmap(std::byte* wanted, std::size_t size, int protection, int flags, int file,
                    std::uint64_t offset) {
  return address_of(past_own_limits(size, [&] {
    return syscall(SYS_mmap, wanted, size, protection, flags, file, static_cast<long>(offset));
  }));
}

std::byte* raw_mremap(std::byte* from, std::size_t size, int flags, std::byte* to) {
  return address_of(past_own_limits(
      size, [&] { return syscall(SYS_mremap, from, size, size, static_cast<long>(flags), to); }));
}

int raw_munmap(std::byte* address, std::size_t size) {
  return static_cast<int>(syscall(SYS_munmap, address, size));
}

int raw_munlock(std::byte* address, std::size_t size) {
  return static_cast<int>(syscall(SYS_munlock, address, size));
}

int raw_mprotect(std::byte* address, std::size_t size, int protection) {
  return static_cast<int>(
      past_own_limits(size, [&] { return syscall(SYS_mprotect, address, size, protection); }));
}

int raw_madvise(std::byte* address, std::size_t size, int advice) {
  return static_cast<int>(syscall(SYS_madvise, address, size, advice));
}

void populate(std::byte* address, std::size_t size) {
  while (raw_madvise(address, size, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) die_of_refusal("madvise(MADV_POPULATE_WRITE)", address, errno);
    populate_by_touch(address, size);
    return;
  }
}

// A pin for reading must not see a page change hands, so the kernel copies a shared page before it
// pins one; other ways to have it copied are writes. Reading one byte of another process pins its
// page, and that process may be this one.
bool unshare(std::byte* address, std::size_t size) {
  constexpr std::size_t kAtOnce = 512;  // Of UIO_MAXIOV = 1024; the small pages of one frame.
  const auto step = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::array<iovec, kAtOnce> pages;
  std::array<std::byte, kAtOnce> bytes;
  for (std::size_t offset = 0; offset < size;) {
    std::size_t count = 0;
    for (; count < kAtOnce && offset < size; offset += step) pages[count++] = {address + offset, 1};
    const iovec here{bytes.data(), count};
    const long read = syscall(SYS_process_vm_readv, static_cast<long>(getpid()), &here, 1UL,
                              pages.data(), count, 0UL);
    if (read != static_cast<long>(count)) return false;
  }
  return true;
}

void discard(std::byte* address, std::size_t size) {
  while (raw_madvise(address, size, MADV_DONTNEED) != 0) {
    if (errno == EAGAIN || errno == EINTR) continue;
    die_of_refusal("madvise(MADV_DONTNEED)", address, errno);
  }
}

void require_advice(std::byte* address, std::size_t size) {
  struct {
    int number;
    const char* name;
  } constexpr kNeeded[] = {{MADV_POPULATE_WRITE, "madvise(MADV_POPULATE_WRITE)"},
                           {MADV_DONTNEED, "madvise(MADV_DONTNEED)"}};
  for (const auto& advice : kNeeded) {
    if (raw_madvise(address, size, advice.number) == 0) continue;
    // EINVAL: a kernel before 5.14, where touching the memory does.
    if (errno == EINVAL || errno == EAGAIN || errno == EINTR) continue;
    throw UnsupportedError("{} is refused: {}", advice.name, why_refused(errno, Bytes(size)));
  }
}

void die_of_refusal(const char* call, const void* address, int error) {
  regain_standard_error();
  char reason[512];
  write_why_refused(error, kPageSize, reason);
  char text[768];
  const int length = std::snprintf(
      text, sizeof text, "[spillway] fatal: %s refused at address %p: %s\n", call, address, reason);
  const auto size = static_cast<std::size_t>(length) < sizeof text
                        ? static_cast<std::size_t>(length)
                        : sizeof text - 1;
  if (write(STDERR_FILENO, text, size) < 0) std::abort();
  std::abort();
}

}  // namespace spillway::memory
