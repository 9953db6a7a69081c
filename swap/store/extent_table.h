#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "spillway/swap/spill_store.h"

namespace spillway::swap {

/// What a store keeps for each extent. Grows without moving what is there, so that a forked child
/// finds all entries that stood when it came, whatever the one thread that writes was doing.
template <typename Entry>
class ExtentTable {
 public:
  ExtentTable() = default;
  ExtentTable(const ExtentTable&) = delete;
  ExtentTable& operator=(const ExtentTable&) = delete;

  ~ExtentTable() {
    for (const auto& block : blocks_) delete[] block.load(std::memory_order_relaxed);
  }

  /// An entry to write to, made where there was none. One thread at a time.
  Entry& at(ExtentId extent) {
    const Position at = position_of(extent.value());
    std::atomic<Entry*>& block = blocks_[at.block];
    if (block.load(std::memory_order_relaxed) == nullptr)
      block.store(new Entry[kFirst << at.block]{}, std::memory_order_release);
    return block.load(std::memory_order_relaxed)[at.index];
  }

  /// Null: there is none. Any thread, and forked children.
  const Entry* find(ExtentId extent) const {
    const Position at = position_of(extent.value());
    const Entry* const block = blocks_[at.block].load(std::memory_order_acquire);
    return block == nullptr ? nullptr : block + at.index;
  }

 private:
  struct Position {
    std::size_t block;
    std::size_t index;
  };

  // Each block is twice as large as the one before it, so a few cover all ids.
  static constexpr std::size_t kFirst = 1024;

  static Position position_of(std::uint32_t extent) {
    const std::size_t nth = extent / kFirst + 1;
    const auto block = static_cast<std::size_t>(std::bit_width(nth)) - 1;
    return {block, extent - kFirst * ((std::size_t{1} << block) - 1)};
  }

  std::array<std::atomic<Entry*>, 24> blocks_{};
};

}  // namespace spillway::swap
