#pragma once

#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/device/cpu.h"
#include "spillway/memory/address_space.h"
#include "spillway/memory/frame_mapper.h"

namespace spillway::device {

/// A device with an address space of its own, as a GPU has one: the host faults where it touches an
/// address of it. Its bytes lie elsewhere on the host, and its queues are those of the CPU.
class ShadowDevice final : public Device {
 public:
  /// `memory`: as it tells of itself; none: the host's.
  explicit ShadowDevice(DeviceId id = {DeviceKind::kCuda, 7}, std::optional<MemoryInfo> memory = {})
      : Device(id, {.pinned_host_memory = true}), told_memory_(memory) {}

  /// Where the bytes of a span of this device lie on the host; other spans as they are. Null where
  /// nothing lies.
  DeviceSpan bytes_of(DeviceSpan span) const {
    if (span.device != id()) return span;
    if (span.size == Bytes()) return {};
    const std::lock_guard lock(mutex_);
    if (const auto page = at_or_before(mapped_, span.data); page != mapped_.end()) {
      const Bytes offset(static_cast<std::uint64_t>(span.data - page->first));
      if (offset < page->second.size) span = page->second.part(offset, span.size);
    }
    const auto block = at_or_before(blocks_, span.data);
    if (block == blocks_.end() || span.data >= block->second.addresses.end()) return {};
    const Bytes offset(static_cast<std::uint64_t>(span.data - block->first));
    return host_span(block->second.bytes.begin() + offset.count(), span.size);
  }

  /// Lays memory of this device beneath addresses that have none, until `unmap`.
  void map(DeviceSpan addresses, DeviceSpan memory) {
    const std::lock_guard lock(mutex_);
    SPILLWAY_ASSERT(mapped_.emplace(addresses.data, memory).second);
  }
  void unmap(DeviceSpan addresses) {
    const std::lock_guard lock(mutex_);
    SPILLWAY_ASSERT(mapped_.erase(addresses.data) == 1);
  }
  void unmap_all(std::byte* begin, std::byte* end) {
    const std::lock_guard lock(mutex_);
    mapped_.erase(mapped_.lower_bound(begin), mapped_.lower_bound(end));
  }

  std::string why_not_pinned;  ///< Refuses to pin host memory; empty: does so.

 private:
  template <typename Map>
  static typename Map::const_iterator at_or_before(const Map& map, std::byte* address) {
    const auto behind = map.upper_bound(address);
    return behind == map.begin() ? map.end() : std::prev(behind);
  }

  struct Block {
    memory::AddressSpace addresses;  // Which nobody may touch.
    memory::AddressSpace bytes;
  };

  class Moment final : public EventState {
   public:
    Moment(DeviceId device, Timing timing, Event real)
        : EventState(device, timing), real_(std::move(real)) {}
    bool is_done() const override { return real_.is_done(); }
    Outcome wait() const override { return real_.wait(); }
    Duration time_since(const EventState& earlier) const override {
      return elapsed(dynamic_cast<const Moment&>(earlier).real_, real_);
    }

   private:
    const Event real_;
  };

  class ShadowQueue final : public Queue {
   public:
    ShadowQueue(const ShadowDevice& device, std::unique_ptr<Queue> real)
        : Queue(device.id()), owner_(device), real_(std::move(real)) {}

   private:
    void do_copy(DeviceSpan to, DeviceSpan from) override {
      // Looked up when its turn comes, as a device does: what it touches must be there until then.
      real_->run([this, to, from] {
        const DeviceSpan target = owner_.bytes_of(to);
        const DeviceSpan source = owner_.bytes_of(from);
        if (to.size == Bytes()) return Outcome{};
        if (target.data == nullptr || source.data == nullptr)
          return Outcome{message("device {} touches what is not there", to_string(device()))};
        std::memcpy(target.data, source.data, to.size.count());
        return Outcome{};
      });
    }
    void do_run(std::function<Outcome()> work) override { real_->run(std::move(work)); }
    Event do_record(Timing timing) override {
      return Event(std::make_shared<Moment>(device(), timing, real_->record(timing)));
    }
    void do_wait(const std::shared_ptr<const EventState>& event) override {
      real_->wait(Event(event));
    }

    const ShadowDevice& owner_;
    const std::unique_ptr<Queue> real_;
  };

  MemoryInfo do_memory() const override { return told_memory_.value_or(real_->memory()); }

  std::byte* do_allocate(Bytes size) override {
    if (size > do_memory().total) throw Error("device {} has no {} of memory", id(), size);
    constexpr std::uint64_t kUnit = memory::kPageSize.count();
    const Bytes whole((size.count() / kUnit + 1) * kUnit);  // Of nothing, too.
    using Opened = memory::AddressSpace::Opened;
    Block block{{whole, Opened::kAsNeeded, "a device"}, {whole, Opened::kAtOnce, "a device"}};
    std::byte* const address = block.addresses.begin();
    const std::lock_guard lock(mutex_);
    blocks_.emplace(address, std::move(block));
    return address;
  }

  void do_release(DeviceSpan memory) noexcept override {
    const std::lock_guard lock(mutex_);
    SPILLWAY_ASSERT(blocks_.erase(memory.data) == 1);
  }

  std::unique_ptr<Queue> do_make_queue(const std::string& name) override {
    return std::make_unique<ShadowQueue>(*this, real_->make_queue(name));
  }

  std::string do_pin_host(DeviceSpan) override { return why_not_pinned; }
  void do_unpin_host(DeviceSpan) noexcept override {}

  const std::optional<MemoryInfo> told_memory_;
  const std::unique_ptr<Device> real_ = make_cpu_device();
  mutable std::mutex mutex_;
  std::map<std::byte*, Block> blocks_;
  std::map<std::byte*, DeviceSpan> mapped_;  ///< By address: pieces of blocks.
};

}  // namespace spillway::device
