#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "spillway/memory/page_memory.h"
#include "support/shadow_device.h"

namespace spillway::memory {

/// Pages of a ShadowDevice: small ones, in addresses that the host cannot touch, whose accesses
/// nobody reports. Where a queue of the device reaches a page that is out, its work fails.
class ShadowPages : public PageMemory, private FramesInUse {
 public:
  static constexpr Bytes kSize = 64_KiB;

  explicit ShadowPages(std::shared_ptr<device::ShadowDevice> device)
      : PageMemory(device->id(), kSize), device_(std::move(device)) {}
  ~ShadowPages() override { device_->unmap_all(addresses_.begin(), addresses_.end()); }

  void make_frame(SlotId slot) override {
    const std::lock_guard lock(mutex_);
    SPILLWAY_ASSERT(frames_[slot.value()] == kEmpty && !unused_.empty());
    frames_[slot.value()] = unused_.back();
    unused_.pop_back();
  }

  void drop_frame(SlotId slot) override {
    const std::lock_guard lock(mutex_);
    unused_.push_back(taken_from(frames_[slot.value()]));
  }

  using PageMemory::span_of;
  device::DeviceSpan span_of(SlotId slot) override {
    const std::lock_guard lock(mutex_);
    return memory_.span().part(kSize * frames_[slot.value()], kSize);
  }

  void map(PageIndex page, SlotId slot, Access /*allowed*/) override {
    const std::lock_guard lock(mutex_);
    SPILLWAY_ASSERT(pages_[page] == kEmpty);
    pages_[page] = taken_from(frames_[slot.value()]);
    device_->map(span_of(page), memory_.span().part(kSize * pages_[page], kSize));
  }

  MoveResult unmap(SlotId slot, PageIndex page) override {
    const std::lock_guard lock(mutex_);
    SPILLWAY_ASSERT(frames_[slot.value()] == kEmpty);
    frames_[slot.value()] = taken_from(pages_[page]);
    device_->unmap(span_of(page));
    return MoveResult::kMoved;
  }

  FramesInUse* frames_in_use() override { return this; }

  void move(PageIndex to, PageIndex from) override {
    const std::lock_guard lock(mutex_);
    SPILLWAY_ASSERT(pages_[to] == kEmpty);
    pages_[to] = taken_from(pages_[from]);
    device_->map(span_of(to), memory_.span().part(kSize * pages_[to], kSize));
  }

  void end_move(PageIndex from) override { device_->unmap(span_of(from)); }

  void copy(SlotId, PageIndex) override { SPILLWAY_ASSERT(false); }  // Its frames always move.
  void drop(PageIndex) override { SPILLWAY_ASSERT(false); }

 private:
  static constexpr std::uint32_t kEmpty = static_cast<std::uint32_t>(-1);

  static std::uint32_t taken_from(std::uint32_t& place) {
    SPILLWAY_ASSERT(place != kEmpty);
    return std::exchange(place, kEmpty);
  }

  std::byte* do_reserve(std::size_t pages, std::size_t frames, AccessSink& /*sink*/) override {
    constexpr std::uint64_t kUnit = kPageSize.count();
    const Bytes whole((kSize.count() * pages + kUnit - 1) / kUnit * kUnit);
    addresses_ = AddressSpace(whole, AddressSpace::Opened::kAsNeeded, "pages of a device");
    memory_ = device_->allocate(kSize * frames);
    pages_.assign(pages, kEmpty);
    frames_.assign(frames, kEmpty);
    for (std::size_t i = frames; i > 0; --i) unused_.push_back(static_cast<std::uint32_t>(i - 1));
    return addresses_.begin();
  }

  const std::shared_ptr<device::ShadowDevice> device_;
  AddressSpace addresses_;
  device::DeviceMemory memory_;
  mutable std::mutex mutex_;
  std::vector<std::uint32_t> pages_;   ///< Which piece of `memory_` lies beneath each.
  std::vector<std::uint32_t> frames_;  ///< The same by slot.
  std::vector<std::uint32_t> unused_;
};

}  // namespace spillway::memory
