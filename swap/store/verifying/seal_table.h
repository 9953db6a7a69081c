#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace spillway::swap {

/// Checksum and size of what was written to an extent.
struct Seal {
  std::uint64_t sum = 0;
  std::uint32_t size = 0;  ///< 0: never written.
};

/// Seals by extent. Grows without moving what is there, so that a forked child finds all seals of
/// finished writes whatever the I/O thread, the only writer, was doing when the child came.
class SealTable {
 public:
  SealTable() = default;
  SealTable(const SealTable&) = delete;
  SealTable& operator=(const SealTable&) = delete;

  ~SealTable() {
    for (const auto& block : blocks_) delete[] block.load(std::memory_order_relaxed);
  }

  void set(std::uint32_t extent, Seal seal) {
    const Position at = position_of(extent);
    std::atomic<Seal*>& block = blocks_[at.block];
    if (block.load(std::memory_order_relaxed) == nullptr)
      block.store(new Seal[kFirst << at.block], std::memory_order_release);
    block.load(std::memory_order_relaxed)[at.index] = seal;
  }

  Seal get(std::uint32_t extent) const {
    const Position at = position_of(extent);
    const Seal* const block = blocks_[at.block].load(std::memory_order_acquire);
    return block == nullptr ? Seal{} : block[at.index];
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

  std::array<std::atomic<Seal*>, 24> blocks_{};
};

}  // namespace spillway::swap
