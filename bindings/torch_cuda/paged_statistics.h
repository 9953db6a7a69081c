#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstdint>
#include <mutex>

#include "spillway/base/bytes.h"

namespace spillway::torch_binding {

/// What LibTorch's statistics of a device would have of the blocks that Spillway pages: programs
/// ask how much their tensors take (torch.cuda.memory_allocated). Any thread.
class PagedStatistics {
 public:
  void allocated(Bytes size) {
    const std::lock_guard lock(mutex_);
    blocks_.increase(1);
    bytes_.increase(size.count());
  }
  void freed(Bytes size) {
    const std::lock_guard lock(mutex_);
    blocks_.decrease(1);
    bytes_.decrease(size.count());
  }
  void reset_accumulated() {
    const std::lock_guard lock(mutex_);
    blocks_.reset_accumulated();
    bytes_.reset_accumulated();
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    blocks_.reset_peak();
    bytes_.reset_peak();
  }

  /// Peaks of both are added, though they may have been at different times.
  void add_to(c10::CachingDeviceAllocator::DeviceStats& statistics) const {
    using c10::CachingAllocator::StatType;
    const std::lock_guard lock(mutex_);
    for (const StatType type : {StatType::AGGREGATE, StatType::LARGE_POOL}) {
      const auto index = static_cast<std::size_t>(type);
      add(statistics.allocation[index], blocks_);
      add(statistics.active[index], blocks_);
      for (auto* const bytes :
           {&statistics.allocated_bytes, &statistics.active_bytes, &statistics.requested_bytes})
        add((*bytes)[index], bytes_);
    }
  }

 private:
  using Stat = c10::CachingAllocator::Stat;
  static void add(Stat& to, const Stat& what) {
    to.current += what.current;
    to.peak += what.peak;
    to.allocated += what.allocated;
    to.freed += what.freed;
  }

  mutable std::mutex mutex_;
  Stat blocks_;
  Stat bytes_;
};

}  // namespace spillway::torch_binding
