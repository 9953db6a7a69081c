#pragma once

#include <memory>

#include "spillway/memory/frame_mapper.h"
#include "spillway/memory/page_memory.h"

namespace spillway::memory {

/// The frames of a pool in host memory: transparent huge pages, zeroed by the kernel once.
class HostFrameSource final : public FrameSource {
 public:
  HostFrameSource() = default;
  /// `base` is the reserved region of the pool.
  explicit HostFrameSource(std::byte* base) : base_(base) {}

  void make_frame(SlotId slot) override;
  void drop_frame(SlotId slot) override;
  std::byte* address(SlotId slot) const { return base_ + std::size_t{slot.value()} * kPageBytes; }

 private:
  std::byte* base_ = nullptr;
};

/// Host memory in pages of 2 MiB, moved, protected and watched by `mapper`. Transfers go straight
/// to and from its pages. Accesses that nobody announced are reported, and forked children read
/// what they inherit. A process may have several.
std::unique_ptr<PageMemory> make_host_pages(std::unique_ptr<FrameMapper> mapper);

/// The same with a mapper of that kind. Throws UnsupportedError where it does not work here.
std::unique_ptr<PageMemory> make_host_pages(MapperKind kind);

}  // namespace spillway::memory
