#include "spillway/memory/inherited_pages.h"

#include <sys/mman.h>

#include <cerrno>

#include "raw_calls.h"
#include "spillway/memory/frame_mapper.h"

namespace spillway::memory {
namespace {

constexpr int kOpen = PROT_READ | PROT_WRITE;

void protect(std::byte* first, std::size_t pages, int protection) {
  if (raw_mprotect(first, pages * kPageBytes, protection) != 0) {
    die_of_refusal("mprotect", first, errno, "raise vm.max_map_count");
  }
}

}  // namespace

void seal_pages(std::byte* first, std::size_t pages) { protect(first, pages, PROT_NONE); }

void open_pages(std::byte* first, std::size_t pages) { protect(first, pages, kOpen); }

bool show_file(std::byte* first, std::size_t pages, int file, std::uint64_t offset) {
  constexpr int kFlags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
  return raw_mmap(first, pages * kPageBytes, kOpen, kFlags, file, offset) != nullptr;
}

std::byte* stage_page() {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  std::byte* const whole = raw_mmap(nullptr, 2 * kPageBytes, kOpen, kFlags);
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

bool place_page(std::byte* page, std::byte* staged) {
  if (raw_mremap(staged, kPageBytes, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page) return true;
  const int error = errno;
  raw_munmap(staged, kPageBytes);
  errno = error;
  return false;
}

}  // namespace spillway::memory
