#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "spillway/device/device.h"
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

/// The same in the memory of a device; of none where that is null.
class DevicePatternPages {
 public:
  DevicePatternPages(std::shared_ptr<device::Device> device, std::size_t count);

  std::byte* operator[](std::size_t page) const { return span_of(page, kExtentBytes).data; }
  void fill(std::size_t page, std::uint64_t pattern, std::size_t size = kExtentBytes);
  bool holds(std::size_t page, std::uint64_t pattern, std::size_t size = kExtentBytes) const;

 private:
  device::DeviceSpan span_of(std::size_t page, std::size_t size) const {
    return memory_.span().part(Bytes(page * kExtentBytes), Bytes(size));
  }
  void copy(device::DeviceSpan to, device::DeviceSpan from) const;

  std::shared_ptr<device::Device> device_;
  device::DeviceMemory memory_;
  std::unique_ptr<device::Queue> queue_;
  PatternPages host_{1};
};

/// Where the pages of a fixture's transfers lie: on the host, unless it has `pages(count)`.
template <typename Fixture>
auto pages_for(const Fixture& fixture, std::size_t count) {
  if constexpr (requires { fixture.pages(count); }) {
    return fixture.pages(count);
  } else {
    return PatternPages(count);
  }
}

/// Reaps until `count` transfers have finished. Waits long: a store that loses one ends in a failed
/// test, not in a hang.
std::vector<TransferResult> reap_all(SpillStore& store, std::size_t count);

/// Submits one transfer and waits for it; nothing else may be in flight.
TransferResult carry_out(SpillStore& store, const Transfer& transfer);

}  // namespace spillway::swap
