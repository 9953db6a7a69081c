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
class CudaPages final : public PageMemory, private FramesInUse {
 public:
  CudaPages(std::shared_ptr<device::Device> device, std::unique_ptr<CudaVirtualMemory> memory,
            Bytes page_size)
      : PageMemory(device->id(), page_size),
        device_(std::move(device)),
        memory_(std::move(memory)) {}

  ~CudaPages() override {
    for (std::size_t page = 0; page < pages_.size(); ++page)
      if (pages_[page].has_memory())
        memory_->unmap(pages_begin_ + page * page_bytes(), page_size());
    for (std::size_t frame = 0; frame < chunks_.size(); ++frame)
      if (chunks_[frame].memory.is_some()) drop_chunk(static_cast<Frame>(frame));
    if (pages_begin_ != nullptr) memory_->give_back(pages_begin_, page_size() * pages_.size());
    if (aliases_ != nullptr) memory_->give_back(aliases_, page_size() * chunks_.size());
  }

  void make_frame(SlotId slot) override {
    SPILLWAY_ASSERT(slots_[slot.value()] == kEmpty);
    const CudaVirtualMemory::Chunk chunk = memory_->make_chunk(page_size());
    const std::lock_guard lock(mutex_);
    const Frame frame = take_number_locked();
    chunks_[frame].memory = chunk;
    or_end([&] { memory_->map(alias_of(frame), chunk, page_size()); });
    slots_[slot.value()] = frame;
  }

  void drop_frame(SlotId slot) override {
    const std::lock_guard lock(mutex_);
    const Frame frame = taken_from(slots_[slot.value()]);
    take_from_ended_locked(frame);
    drop_chunk(frame);
    numbers_.push_back(frame);
  }

  using PageMemory::span_of;
  device::DeviceSpan span_of(SlotId slot) override {
    const std::lock_guard lock(mutex_);
    const Frame frame = slots_[slot.value()];
    take_from_ended_locked(frame);
    return {PageMemory::device(), alias_of(frame), page_size()};
  }

  // The driver may let this wait for a millisecond, so nobody else does meanwhile. From then on it
  // is as if the page had ended with this frame: if it does, nothing is left to be undone.
  void prepare_map(PageIndex page, SlotId slot) override {
    CudaVirtualMemory::Chunk chunk;
    std::size_t admissions = 0;
    {
      const std::lock_guard lock(mutex_);
      admissions = admissions_;
      SPILLWAY_ASSERT(pages_[page].frame == kEmpty);
      make_bare_locked(page);
      take_from_ended_locked(slots_[slot.value()]);
      chunk = chunks_[slots_[slot.value()]].memory;
    }
    or_end([&] { memory_->map(span_of(page).data, chunk, page_size()); });
    const std::lock_guard lock(mutex_);
    if (admissions != admissions_)
      or_end([&] { memory_->renew_access(span_of(page).data, page_size()); });
    pages_[page].ended_in = slot;
    chunks_[slots_[slot.value()]].ended = page;
  }

  void map(PageIndex page, SlotId slot, Access /*allowed*/) override {
    const std::lock_guard lock(mutex_);
    map_locked(page, slot);
  }

  MoveResult unmap(SlotId slot, PageIndex page) override {
    const std::lock_guard lock(mutex_);
    SPILLWAY_ASSERT(slots_[slot.value()] == kEmpty);
    slots_[slot.value()] = taken_from(pages_[page].frame);
    unmap_page(page);
    return MoveResult::kMoved;
  }

  MoveResult unmap_ended(SlotId slot, PageIndex page) override {
    const std::lock_guard lock(mutex_);
    SPILLWAY_ASSERT(slots_[slot.value()] == kEmpty);
    const Frame frame = taken_from(pages_[page].frame);
    slots_[slot.value()] = frame;
    pages_[page].ended_in = slot;
    chunks_[frame].ended = page;
    return MoveResult::kMoved;
  }

  void map_fresh(PageIndex page, SlotId slot) override {
    const std::lock_guard lock(mutex_);
    const SlotId before = pages_[page].ended_in;
    if (!before.is_some() || before == slot) return map_locked(page, slot);
    // The frame of `slot` comes to rest where the page's own did.
    pages_[page].frame = take_own_frame_locked(page);
    const Frame other = taken_from(slots_[slot.value()]);
    slots_[before.value()] = other;
    if (chunks_[other].ended != kNoPage) pages_[chunks_[other].ended].ended_in = before;
  }

  FramesInUse* frames_in_use() override { return this; }

  void move(PageIndex to, PageIndex from) override {
    const std::lock_guard lock(mutex_);
    const Frame frame = taken_from(pages_[from].frame);
    pages_[from].has_moved_on = true;
    lay_locked(to, frame);
  }

  void end_move(PageIndex from) override {
    const std::lock_guard lock(mutex_);
    SPILLWAY_ASSERT(pages_[from].has_moved_on);
    pages_[from].has_moved_on = false;
    unmap_page(from);
  }

  // Aliases are for the device's own copies.
  void admit(device::DeviceId peer) {
    const std::lock_guard lock(mutex_);
    memory_->admit(peer);
    ++admissions_;
    for (PageIndex page = 0; page < pages_.size(); ++page)
      if (pages_[page].has_memory()) memory_->renew_access(span_of(page).data, page_size());
  }

  void copy(SlotId, PageIndex) override { SPILLWAY_ASSERT(false); }  // Its frames always move.
  void drop(PageIndex) override { SPILLWAY_ASSERT(false); }

 private:
  using Frame = std::uint32_t;  // Number of a frame, and of its alias.
  static constexpr Frame kEmpty = static_cast<Frame>(-1);

  static constexpr PageIndex kNoPage = static_cast<PageIndex>(-1);

  struct Page {
    Frame frame = kEmpty;
    SlotId ended_in;  ///< Where the frame rests that lies beneath it still; none: no frame does.
    bool has_moved_on = false;  ///< Its frame is another page's, and lies beneath it still.

    bool has_memory() const { return frame != kEmpty || ended_in.is_some() || has_moved_on; }
  };
  struct Chunk {
    CudaVirtualMemory::Chunk memory;
    PageIndex ended = kNoPage;  ///< The ended page that it lies beneath.
  };

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
    pages_.assign(pages, {});
    aliases_ = memory_->reserve(page_size() * frames, page_size());
    slots_.assign(frames, kEmpty);
    chunks_.assign(frames, {});
    for (std::size_t i = frames; i > 0; --i) numbers_.push_back(static_cast<Frame>(i - 1));
    return pages_begin_;
  }

  void map_locked(PageIndex page, SlotId slot) {
    if (pages_[page].ended_in == slot) {
      SPILLWAY_ASSERT(pages_[page].frame == kEmpty);
      pages_[page].frame = take_own_frame_locked(page);
      return;
    }
    const Frame frame = taken_from(slots_[slot.value()]);
    take_from_ended_locked(frame);
    lay_locked(page, frame);
  }

  void lay_locked(PageIndex page, Frame frame) {
    SPILLWAY_ASSERT(pages_[page].frame == kEmpty && !pages_[page].has_moved_on);
    make_bare_locked(page);
    or_end([&] { memory_->map(span_of(page).data, chunks_[frame].memory, page_size()); });
    pages_[page].frame = frame;
  }

  /// Of an empty page: the frame that lies beneath it still.
  Frame take_own_frame_locked(PageIndex page) {
    const SlotId slot = std::exchange(pages_[page].ended_in, {});
    const Frame own = taken_from(slots_[slot.value()]);
    chunks_[own].ended = kNoPage;
    return own;
  }

  /// From now on no frame lies beneath the empty page.
  void make_bare_locked(PageIndex page) {
    if (const SlotId slot = pages_[page].ended_in; slot.is_some())
      take_from_ended_locked(slots_[slot.value()]);
  }

  /// From now on the frame lies beneath its alias alone.
  void take_from_ended_locked(Frame frame) {
    const PageIndex page = std::exchange(chunks_[frame].ended, kNoPage);
    if (page == kNoPage) return;
    pages_[page].ended_in = {};
    unmap_page(page);
  }

  void unmap_page(PageIndex page) {
    or_end([&] { memory_->unmap(span_of(page).data, page_size()); });
  }

  Frame take_number_locked() {
    SPILLWAY_ASSERT(!numbers_.empty());
    const Frame frame = numbers_.back();
    numbers_.pop_back();
    return frame;
  }

  void drop_chunk(Frame frame) {
    or_end([&] { memory_->unmap(alias_of(frame), page_size()); });
    memory_->drop_chunk(std::exchange(chunks_[frame].memory, {}));
  }

  std::size_t page_bytes() const { return page_size().count(); }
  std::byte* alias_of(Frame frame) const { return aliases_ + frame * page_bytes(); }

  const std::shared_ptr<device::Device> device_;
  const std::unique_ptr<CudaVirtualMemory> memory_;
  std::byte* pages_begin_ = nullptr;
  std::byte* aliases_ = nullptr;
  std::mutex mutex_;
  std::vector<Page> pages_;
  std::vector<Frame> slots_;
  std::vector<Chunk> chunks_;   ///< Of each frame; none: it does not exist.
  std::vector<Frame> numbers_;  ///< Of frames that do not exist.
  std::size_t admissions_ = 0;  ///< Of peers so far.
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

void admit_peer(PageMemory& pages, device::DeviceId peer) {
  dynamic_cast<CudaPages&>(pages).admit(peer);
}

}  // namespace spillway::memory
