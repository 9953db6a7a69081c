#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "spillway/device/device.h"
#include "spillway/device/host_slabs.h"

namespace spillway::device {

/// What a probe gives to a device at once: copies of its blocks, and beside them work of the device
/// itself, which is copies within its memory.
struct Burst {
  bool goes_out = false;
  bool comes_in = false;
  std::uint32_t times = 1;  ///< So many times all blocks.
  std::uint32_t work = 0;   ///< Copies of `CopyProbe::kWorkBlock` within the device.
};

struct BurstTimes {
  double copies_seconds = 0.0;  ///< From the begin of the burst to the end of all its copies.
  double work_seconds = 0.0;    ///< To the end of the device's own work.
  Bytes moved;                  ///< Between device and host.
};

/// Copies between a device and slabs of host memory, pinned where that is allowed, timed by the
/// device's own events. One thread.
class CopyProbe {
 public:
  static constexpr Bytes kWorkBlock = 32_MiB;

  /// So many blocks in either direction. Throws Error where the device or the host has no memory
  /// for them, IoError likewise.
  CopyProbe(Device& device, Bytes block, std::uint32_t blocks);

  /// Throws Error where a copy fails.
  BurstTimes run(const Burst& burst);

  /// The same without waiting, and when it has ended.
  Event start(const Burst& burst);

  const HostSlabs& slabs() const { return slabs_; }

 private:
  struct Moments {
    Event begin, copies_end, work_end;
  };
  Moments give(const Burst& burst);
  DeviceSpan block(std::uint32_t index) const {
    return memory_.span().part(block_ * index, block_);
  }

  const Bytes block_;
  const std::uint32_t blocks_;
  DeviceMemory memory_;
  DeviceMemory worked_on_;  ///< None before work is asked for.
  Device& device_;
  HostSlabs slabs_;
  std::vector<HostSlab> held_;
  std::unique_ptr<Queue> out_;
  std::unique_ptr<Queue> in_;
  std::unique_ptr<Queue> work_;
};

}  // namespace spillway::device
