#pragma once

#include <cstddef>

#include "spillway/memory/address_space.h"

namespace spillway::swap {

/// Anonymous memory aligned to extents and in huge pages where the system grants them. Physical
/// memory is taken when first touched. Cores leave it out.
class MappedMemory {
 public:
  explicit MappedMemory(std::size_t size);  ///< Throws IoError when the address space is refused.

  /// Children that are forked later do not have it. Where it is pinned the system copies it for
  /// each of them during the fork otherwise.
  void hide_from_children();

  std::byte* begin() const { return space_.begin(); }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  memory::AddressSpace space_;
};

}  // namespace spillway::swap
