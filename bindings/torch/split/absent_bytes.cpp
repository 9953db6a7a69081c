#include "absent_bytes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

namespace spillway::split {
namespace {

constexpr std::string_view kText =
    "[spillway] These bytes are in the file of the first rank only. \n";
static_assert(kText.size() == 64);

constexpr std::size_t kPage = 4096;

}  // namespace

const void* AbsentBytes::of(std::size_t size) {
  if (size > size_.load(std::memory_order_relaxed)) grow(size);
  return memory_.load(std::memory_order_relaxed);
}

void AbsentBytes::grow(std::size_t size) {
  const std::size_t before = size_.load(std::memory_order_relaxed);
  const std::size_t wanted = std::max({size, 2 * before, kPage});
  // Memory that was never written is one page of zeroes, however much is read.
  void* const made =
      ::mmap(nullptr, wanted, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) throw std::bad_alloc();
  if (::mprotect(made, kPage, PROT_READ | PROT_WRITE) != 0) {
    ::munmap(made, wanted);
    throw std::bad_alloc();
  }
  std::memcpy(made, kText.data(), kText.size());
  ::mprotect(made, kPage, PROT_READ);
  // Who looks meanwhile finds less than there is.
  const auto* const old = memory_.exchange(static_cast<const std::byte*>(made));
  size_.store(wanted, std::memory_order_release);
  if (old != nullptr) ::munmap(const_cast<std::byte*>(old), before);
}

std::size_t AbsentBytes::zeroes_at_end_of(const void* memory, std::size_t size) const noexcept {
  const std::size_t there = size_.load(std::memory_order_acquire);
  const std::byte* const text = memory_.load(std::memory_order_relaxed);
  const auto* const begin = static_cast<const std::byte*>(memory);
  const std::byte* const end = begin + size;
  if (begin < text || end > text + there) return 0;
  return static_cast<std::size_t>(end - std::clamp(text + kText.size(), begin, end));
}

bool AbsentBytes::are_at(const void* memory, std::size_t size) noexcept {
  constexpr std::size_t kLeast = 8;
  return size >= kLeast && std::memcmp(memory, kText.data(), std::min(size, kText.size())) == 0;
}

}  // namespace spillway::split
