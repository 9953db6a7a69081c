#pragma once

#include <cstddef>

namespace spillway::split {

/// Stands in archives of other ranks for the bytes of a tensor, which are in the file of the first
/// rank alone: a text that repeats itself, so that who reads such an archive can tell.
class AbsentBytes {
 public:
  /// So many bytes of it, to be read only, until the next call. Takes addresses, and memory for a
  /// small part of them. One thread. Throws std::bad_alloc.
  const void* of(std::size_t size);

  /// Whether bytes that were read from an archive begin with it. Of less than 8 bytes nothing is
  /// said.
  static bool are_at(const void* memory, std::size_t size) noexcept;

 private:
  void grow(std::size_t size);

  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace spillway::split
