#include "absent_bytes.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <string_view>

namespace spillway::split {
namespace {

constexpr std::string_view kText =
    "[spillway] These bytes are in the file of the first rank only. \n";
static_assert(kText.size() == 64);

/// A file in memory that holds the text again and again.
class Part {
 public:
  /// Throws std::bad_alloc.
  explicit Part(std::size_t size) : size_(size) {
    void* memory = MAP_FAILED;
    if (file_ >= 0 && ::ftruncate(file_, static_cast<off_t>(size)) == 0)
      memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (memory == MAP_FAILED) {
      ::close(file_);
      throw std::bad_alloc();
    }
    for (std::size_t i = 0; i < size; i += kText.size())
      std::memcpy(static_cast<char*>(memory) + i, kText.data(), kText.size());
    ::munmap(memory, size);
  }
  ~Part() { ::close(file_); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  bool cover(std::byte* memory) const {
    return ::mmap(memory, size_, PROT_READ, MAP_SHARED | MAP_FIXED, file_, 0) != MAP_FAILED;
  }

 private:
  const std::size_t size_;
  const int file_ = ::memfd_create("spillway absent bytes", MFD_CLOEXEC);
};

/// Of what stays in memory: the system allows a process some 65,000 mappings.
std::size_t part_for(std::size_t size) {
  constexpr std::size_t kMappings = 1024;
  return std::bit_ceil(std::max(size / kMappings, std::size_t{1} << 20));
}

}  // namespace

const void* AbsentBytes::of(std::size_t size) {
  if (size > size_) grow(size);
  return memory_;
}

void AbsentBytes::grow(std::size_t size) {
  std::size_t wanted = std::max(size, 2 * size_);
  const std::size_t step = part_for(wanted);
  const Part part(step);
  wanted = (wanted + step - 1) / step * step;
  void* const made =
      ::mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) throw std::bad_alloc();
  auto* const memory = static_cast<std::byte*>(made);
  for (std::size_t i = 0; i < wanted; i += step)
    if (!part.cover(memory + i)) {
      ::munmap(memory, wanted);
      throw std::bad_alloc();
    }
  if (memory_ != nullptr) ::munmap(memory_, size_);
  memory_ = memory;
  size_ = wanted;
}

bool AbsentBytes::are_at(const void* memory, std::size_t size) noexcept {
  constexpr std::size_t kLeast = 8;
  return size >= kLeast && std::memcmp(memory, kText.data(), std::min(size, kText.size())) == 0;
}

}  // namespace spillway::split
