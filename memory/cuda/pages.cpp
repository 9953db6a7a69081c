#include <algorithm>
#include <bit>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "spillway/base/end_by_signal.h"
#include "spillway/base/error.h"
#include "spillway/device/cuda/virtual_memory.h"
#include "spillway/memory/cuda/cuda_pages.h"
#include "spillway/memory/frame_mapper.h"

namespace spillway::memory {
namespace {

using device::CudaVirtualMemory;

/// A frame is a chunk that lies beneath an address of its own, its alias, for as long as it exists;
/// there copies fill it while it rests in a slot. Beneath a page it lies in addition.
class CudaPages final : public PageMemory {
 public:
  CudaPages(std::shared_ptr<device::Device> device, std::unique_ptr<CudaVirtualMemory> memory,
            Bytes page_size)
      : PageMemory(device->id(), page_size),
        device_(std::move(device)),
        memory_(std::move(memory)) {}

  ~CudaPages() override {
    for (std::size_t page = 0; page < pages_.size(); ++page)
      if (pages_[page] != kEmpty) memory_->unmap(pages_begin_ + page * page_bytes(), page_size());
    for (std::size_t frame = 0; frame < chunks_.size(); ++frame)
      if (chunks_[frame].is_some()) drop_chunk(static_cast<Frame>(frame));
    if (pages_begin_ != nullptr) memory_->give_back(pages_begin_, page_size() * pages_.size());
    if (aliases_ != nullptr) memory_->give_back(aliases_, page_size() * chunks_.size());
  }

  void make_frame(SlotId slot) override {
    SPILLWAY_ASSERT(slots_[slot.value()] == kEmpty);
    const CudaVirtualMemory::Chunk chunk = memory_->make_chunk(page_size());
    const Frame frame = take_number();
    chunks_[frame] = chunk;
    or_end([&] { memory_->map(alias_of(frame), chunk, page_size()); });
    slots_[slot.value()] = frame;
  }

  void drop_frame(SlotId slot) override {
    const Frame frame = taken_from(slots_[slot.value()]);
    drop_chunk(frame);
    const std::lock_guard lock(mutex_);
    numbers_.push_back(frame);
  }

  using PageMemory::span_of;
  device::DeviceSpan span_of(SlotId slot) const override {
    return {PageMemory::device(), alias_of(slots_[slot.value()]), page_size()};
  }

  // On an H100 laying a chunk beneath an address takes some 36 us whatever its size, nearly all of
  // it in cuMemSetAccess, which takes neighbours in one call: a verb for runs of pages would go
  // here.
  void map(PageIndex page, SlotId slot, Access /*allowed*/) override {
    SPILLWAY_ASSERT(pages_[page] == kEmpty);
    const Frame frame = taken_from(slots_[slot.value()]);
    or_end([&] { memory_->map(span_of(page).data, chunks_[frame], page_size()); });
    pages_[page] = frame;
  }

  MoveResult unmap(SlotId slot, PageIndex page) override {
    SPILLWAY_ASSERT(slots_[slot.value()] == kEmpty);
    slots_[slot.value()] = taken_from(pages_[page]);
    or_end([&] { memory_->unmap(span_of(page).data, page_size()); });
    return MoveResult::kMoved;
  }

  void copy(SlotId, PageIndex) override { SPILLWAY_ASSERT(false); }  // Its frames always move.
  void drop(PageIndex) override { SPILLWAY_ASSERT(false); }

 private:
  using Frame = std::uint32_t;  // Number of a frame, and of its alias.
  static constexpr Frame kEmpty = static_cast<Frame>(-1);

  static Frame taken_from(Frame& place) {
    SPILLWAY_ASSERT(place != kEmpty);
    return std::exchange(place, kEmpty);
  }

  /// The callers are threads to which nobody listens, and what they rely on has not happened.
  template <class Call>
  static void or_end(Call call) {
    try {
      call();
    } catch (const Error& refused) {
      end_by_signal(SIGABRT, refused.what());
    }
  }

  std::byte* do_reserve(std::size_t pages, std::size_t frames, AccessSink& /*sink*/) override {
    pages_begin_ = memory_->reserve(page_size() * pages, page_size());
    pages_.assign(pages, kEmpty);
    aliases_ = memory_->reserve(page_size() * frames, page_size());
    slots_.assign(frames, kEmpty);
    chunks_.assign(frames, {});
    for (std::size_t i = frames; i > 0; --i) numbers_.push_back(static_cast<Frame>(i - 1));
    return pages_begin_;
  }

  Frame take_number() {
    const std::lock_guard lock(mutex_);
    SPILLWAY_ASSERT(!numbers_.empty());
    const Frame frame = numbers_.back();
    numbers_.pop_back();
    return frame;
  }

  void drop_chunk(Frame frame) {
    or_end([&] { memory_->unmap(alias_of(frame), page_size()); });
    memory_->drop_chunk(std::exchange(chunks_[frame], {}));
  }

  std::size_t page_bytes() const { return page_size().count(); }
  std::byte* alias_of(Frame frame) const { return aliases_ + frame * page_bytes(); }

  const std::shared_ptr<device::Device> device_;
  const std::unique_ptr<CudaVirtualMemory> memory_;
  std::byte* pages_begin_ = nullptr;
  std::byte* aliases_ = nullptr;
  // Each place is used by one call at a time.
  std::vector<Frame> pages_;
  std::vector<Frame> slots_;
  std::vector<CudaVirtualMemory::Chunk> chunks_;  ///< Of each frame; none: it does not exist.
  std::mutex mutex_;
  std::vector<Frame> numbers_;  ///< Of frames that do not exist.
};

}  // namespace

std::unique_ptr<PageMemory> make_cuda_pages(std::shared_ptr<device::Device> device,
                                            std::optional<Bytes> page_size) {
  auto memory = std::make_unique<CudaVirtualMemory>(*device);
  const Bytes least = memory->granularity();
  const Bytes size = page_size.value_or(std::max(least, kPageSize));
  if (!std::has_single_bit(size.count()) || size < least)
    throw ConfigError("device {} has no pages of {}: give a power of two from {} on", device->id(),
                      size, least);
  return std::make_unique<CudaPages>(std::move(device), std::move(memory), size);
}

}  // namespace spillway::memory
