#pragma once

#include <cstddef>

#include "spillway/memory/address_space.h"

namespace spillway::swap {

/// Anonymous memory aligned to extents and in huge pages where the system grants them. Physical
/// memory is taken when first touched. Cores leave it out.
class MappedMemory {
 public:
  explicit MappedMemory(std::size_t size);  ///< Throws IoError when the address space is refused.

  std::byte* begin() const { return space_.begin(); }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  memory::AddressSpace space_;
};

}  // namespace spillway::swap
