#pragma once

#include <atomic>
#include <cstddef>

namespace spillway::split {

/// Stands in archives of other ranks for the bytes of a tensor, which are in the file of the first
/// rank alone: a line of text, so that who reads such an archive can tell, and zeroes behind it,
/// which need neither memory nor room on a disk.
class AbsentBytes {
 public:
  /// So many bytes of it, to be read only, until the next call. Takes addresses. One thread. Throws
  /// std::bad_alloc.
  const void* of(std::size_t size);

  /// How many of these bytes, counted from their end, are such zeroes. Any thread, no lock.
  std::size_t zeroes_at_end_of(const void* memory, std::size_t size) const noexcept;

  /// Whether bytes that were read from an archive begin with the text. Of less than 8 bytes nothing
  /// is said.
  static bool are_at(const void* memory, std::size_t size) noexcept;

 private:
  void grow(std::size_t size);

  std::atomic<const std::byte*> memory_{nullptr};
  std::atomic<std::size_t> size_{0};
};

}  // namespace spillway::split
