#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "spillway/swap/spill_store.h"
#include "store/mapped_memory.h"

namespace spillway::swap {

/// Pages of memory for transfers, each filled and checked by a number.
class PatternPages {
 public:
  explicit PatternPages(std::size_t count) : memory_(count * kExtentBytes), count_(count) {}

  std::byte* operator[](std::size_t page) const { return memory_.begin() + page * kExtentBytes; }
  std::size_t count() const { return count_; }

  void fill(std::size_t page, std::uint64_t pattern, std::size_t size = kExtentBytes);
  bool holds(std::size_t page, std::uint64_t pattern, std::size_t size = kExtentBytes) const;

 private:
  MappedMemory memory_;
  std::size_t count_;
};

/// Reaps until `count` transfers have finished. Waits long: a store that loses one ends in a failed
/// test, not in a hang.
std::vector<TransferResult> reap_all(SpillStore& store, std::size_t count);

/// Submits one transfer and waits for it; nothing else may be in flight.
TransferResult carry_out(SpillStore& store, const Transfer& transfer);

}  // namespace spillway::swap
