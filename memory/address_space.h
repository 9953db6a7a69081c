#pragma once

#include <cstddef>
#include <utility>

#include "spillway/base/bytes.h"

namespace spillway::memory {

/// A stretch of reserved address space, aligned to 2 MiB, without memory, between two stretches
/// that nobody may touch. Returned to the system when it dies.
class AddressSpace {
 public:
  AddressSpace() = default;
  /// `protection` as for mmap. Throws UnsupportedError that names the limit that refuses `size`;
  /// `purpose` says what it is for ("paged storages").
  AddressSpace(Bytes size, int protection, const char* purpose);
  AddressSpace(AddressSpace&& other) noexcept { *this = std::move(other); }
  AddressSpace& operator=(AddressSpace&& other) noexcept {
    std::swap(whole_, other.whole_);
    std::swap(whole_size_, other.whole_size_);
    std::swap(begin_, other.begin_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~AddressSpace();

  std::byte* begin() const { return begin_; }
  std::byte* end() const { return begin_ + size_; }
  std::size_t size() const { return size_; }
  bool contains(const std::byte* address) const { return begin_ <= address && address < end(); }

 private:
  std::byte* whole_ = nullptr;
  std::size_t whole_size_ = 0;
  std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace spillway::memory
