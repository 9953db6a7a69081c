#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/swap/storage_range.h"

namespace spillway::runtime {

using swap::RangeUse;

/// The bytes of a storage from the first to behind the last element of a view.
struct ViewBytes {
  std::uint64_t begin = 0;
  Bytes size;  ///< 0: the view has no elements.
};

/// `offset` and `strides` count elements of `item_size` bytes. Strides may be 0 but not negative.
ViewBytes bytes_of_view(std::uint64_t offset, std::span<const std::int64_t> sizes,
                        std::span<const std::int64_t> strides, std::size_t item_size);

/// What one operator uses, in the order of its arguments: uses of one storage stand together, by
/// their first page, and no page belongs to two of them.
class OpUses {
 public:
  void clear() { uses_.clear(); }
  /// Adds a use; one of no storage is ignored.
  void add(const RangeUse& use);
  std::span<const RangeUse> list() const { return uses_; }

 private:
  std::vector<RangeUse> uses_;
};

}  // namespace spillway::runtime
