#pragma once

#include <c10/cuda/CUDAStream.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "spillway/base/bytes.h"

namespace spillway::torch_binding {

/// A block of device memory that Spillway's allocator has handed out.
struct Block {
  Bytes size;  ///< As it was asked for.
  c10::DeviceIndex device = 0;
  bool is_paged = false;  ///< Of the device's runtime; else LibTorch's allocator has it.
  /// Streams that use it past the operators.
  std::vector<c10::cuda::CUDAStream> streams{};
};

/// The blocks, by where they begin. Any thread.
class Blocks {
 public:
  void add(const void* begin, Block block) {
    Part& part = part_of(begin);
    const std::lock_guard lock(part.mutex);
    part.blocks.insert_or_assign(begin, std::move(block));
  }

  std::optional<Block> take(const void* begin) {
    Part& part = part_of(begin);
    const std::lock_guard lock(part.mutex);
    auto found = part.blocks.extract(begin);
    if (found.empty()) return std::nullopt;
    return std::move(found.mapped());
  }

  std::optional<Block> find(const void* begin) {
    Part& part = part_of(begin);
    const std::lock_guard lock(part.mutex);
    const auto found = part.blocks.find(begin);
    if (found == part.blocks.end()) return std::nullopt;
    return found->second;
  }

  void add_stream(const void* begin, c10::cuda::CUDAStream stream) {
    Part& part = part_of(begin);
    const std::lock_guard lock(part.mutex);
    const auto found = part.blocks.find(begin);
    if (found == part.blocks.end()) return;
    for (const c10::cuda::CUDAStream known : found->second.streams)
      if (known == stream) return;
    found->second.streams.push_back(stream);
  }

 private:
  // Trainers allocate on several threads, and each block is short-lived.
  static constexpr std::size_t kParts = 16;
  struct Part {
    std::mutex mutex;
    std::unordered_map<const void*, Block> blocks;
  };
  Part& part_of(const void* begin) {
    return parts_[(reinterpret_cast<std::uintptr_t>(begin) >> 9) % kParts];
  }

  std::array<Part, kParts> parts_;
};

}  // namespace spillway::torch_binding
