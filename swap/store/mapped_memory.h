#pragma once

#include <cstddef>

namespace spillway::swap {

/// Anonymous memory aligned to extents and in huge pages where the system grants them. Physical
/// memory is taken when first touched.
class MappedMemory {
 public:
  explicit MappedMemory(std::size_t size);  ///< Throws IoError when the address space is refused.
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  std::byte* begin() const { return begin_; }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  std::byte* mapping_;
  std::byte* begin_;
};

}  // namespace spillway::swap
