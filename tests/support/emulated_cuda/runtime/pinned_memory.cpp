#include "pinned_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "failure.h"

namespace spillway::emulated {
namespace {

std::uintptr_t page_of(std::uintptr_t address) { return address / kPage * kPage; }
std::uintptr_t next_page(std::uintptr_t address) { return page_of(address + kPage - 1); }
bool overlaps(const PinnedUse& use, std::uintptr_t begin, std::uintptr_t end) {
  return use.begin < end && begin < use.end;
}

bool open_pages(const void* address, std::size_t bytes) {
  const std::uintptr_t first = page_of(reinterpret_cast<std::uintptr_t>(address));
  const std::uintptr_t last = next_page(reinterpret_cast<std::uintptr_t>(address) + bytes);
  return mprotect(reinterpret_cast<void*>(first), last - first, PROT_READ | PROT_WRITE) == 0;
}

void copy_plain(const char* pinned, char* other, std::size_t bytes) {
  std::copy_n(pinned, bytes, other);
}
void copy_plain(char* pinned, const char* other, std::size_t bytes) {
  std::copy_n(other, bytes, pinned);
}

// Calls `move(pinned, other, bytes)`, which gives the number of bytes that it moved, until all are.
// Where the system does not let a process past its own protections (shared mappings), the memory
// loses them.
template <class Pinned, class Other, class Move>
void transfer(Pinned* pinned, Other* other, std::size_t bytes, Move move) {
  while (bytes > 0) {
    const ssize_t done = move(pinned, other, bytes);
    if (done <= 0) {
      if (!open_pages(pinned, bytes))
        die("pinned memory at " + hex(pinned) + " was unmapped while a device used it");
      copy_plain(pinned, other, bytes);
      return;
    }
    pinned += done;
    other += done;
    bytes -= static_cast<std::size_t>(done);
  }
}

}  // namespace

PinnedMemory& PinnedMemory::of_process() {
  static auto* memory = new PinnedMemory;  // Leaked: workers use it to the end.
  return *memory;
}

PinnedMemory::PinnedMemory() : memory_of_process_(open("/proc/self/mem", O_RDWR | O_CLOEXEC)) {}

void PinnedMemory::protect(const Range& range, PinnedUse use) {
  use.begin = next_page(use.begin);
  use.end =
      use.end == range.end() && range.kind == Kind::kHost ? next_page(use.end) : page_of(use.end);
  if (use.begin >= use.end) return;
  const std::lock_guard lock(mutex_);
  uses_.push_back(std::move(use));
  apply(uses_.back().begin, uses_.back().end);
}

void PinnedMemory::release(const Clock& host) {
  const std::lock_guard lock(mutex_);
  const auto done = std::stable_partition(
      uses_.begin(), uses_.end(),
      [&host](const PinnedUse& use) { return host.of(use.stream) < use.tick; });
  const std::vector<PinnedUse> ended(std::make_move_iterator(done),
                                     std::make_move_iterator(uses_.end()));
  uses_.erase(done, uses_.end());
  for (const PinnedUse& use : ended) apply(use.begin, use.end);
}

void PinnedMemory::forget(const Range& range) {
  const std::lock_guard lock(mutex_);
  std::erase_if(uses_,
                [&range](const PinnedUse& use) { return overlaps(use, range.begin, range.end()); });
  apply(page_of(range.begin), next_page(range.end()));
}

// Gives each page of [begin, end) the access that the uses leave to the host.
void PinnedMemory::apply(std::uintptr_t begin, std::uintptr_t end) {
  std::set<std::uintptr_t> borders{begin, end};
  for (const PinnedUse& use : uses_) {
    if (!overlaps(use, begin, end)) continue;
    borders.insert(std::max(begin, use.begin));
    borders.insert(std::min(end, use.end));
  }
  for (auto at = borders.begin(); std::next(at) != borders.end(); ++at) {
    int access = PROT_READ | PROT_WRITE;
    for (const PinnedUse& use : uses_) {
      if (!overlaps(use, *at, *std::next(at))) continue;
      access &= use.kind == Use::kWrite ? PROT_NONE : PROT_READ;
    }
    mprotect(reinterpret_cast<void*>(*at), *std::next(at) - *at, access);
  }
}

void PinnedMemory::read(void* to, const void* from, std::size_t bytes) {
  transfer(static_cast<const char*>(from), static_cast<char*>(to), bytes,
           [this](const char* pinned, char* other, std::size_t n) {
             return pread(memory_of_process_, other, n, reinterpret_cast<off_t>(pinned));
           });
}

void PinnedMemory::write(void* to, const void* from, std::size_t bytes) {
  transfer(static_cast<char*>(to), static_cast<const char*>(from), bytes,
           [this](char* pinned, const char* other, std::size_t n) {
             return pwrite(memory_of_process_, other, n, reinterpret_cast<off_t>(pinned));
           });
}

std::optional<PinnedUse> PinnedMemory::find(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  for (const PinnedUse& use : uses_) {
    if (overlaps(use, at, at + 1)) return use;
  }
  return std::nullopt;
}

bool PinnedMemory::open_page(const void* address) {
  return find(address) && open_pages(address, 1);
}

}  // namespace spillway::emulated
