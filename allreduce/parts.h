#pragma once

#include <cstddef>
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
  void gather(Bytes begin, std::span<std::byte> into) const;
  void scatter(Bytes begin, std::span<const std::byte> from) const;

 private:
  struct Part {
    Bytes begin;
    std::span<std::byte> bytes;
  };

  std::size_t part_at(Bytes offset) const;
  template <typename Copy>
  void for_each(Bytes begin, std::size_t size, const Copy& copy) const;

  std::vector<Part> parts_;  ///< None of them empty.
  Bytes size_;
};

}  // namespace spillway::allreduce
