#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "spillway/base/bytes.h"

namespace spillway::allreduce {

/// Several arrays as one. Offsets count through all of them.
class Parts {
 public:
  explicit Parts(const std::vector<std::span<std::byte>>& parts);

  Bytes size() const { return size_; }
  /// Where these bytes are if they lie in one part; null if not, or if there are none.
  std::byte* find(Bytes begin, Bytes size) const;
  /// Calls copy(place in a part, offset from `begin`, size) for each stretch of these bytes.
  using Copy = std::function<void(std::byte* place, std::size_t offset, std::size_t size)>;
  void for_each(Bytes begin, Bytes size, const Copy& copy) const;

 private:
  struct Part {
    Bytes begin;
    std::span<std::byte> bytes;
  };

  std::size_t part_at(Bytes offset) const;

  std::vector<Part> parts_;  ///< None of them empty.
  Bytes size_;
};

}  // namespace spillway::allreduce
