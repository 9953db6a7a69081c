#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/device/device.h"

namespace spillway::device {

enum class Pinning : std::uint8_t { kPageable, kPinned };

/// Gives so much memory of the host, aligned to 4096 bytes. Throws IoError where it is refused.
using HostMemorySource = std::function<std::shared_ptr<std::byte>(Bytes size)>;

struct HostSlabsOptions {
  Bytes slab_size{std::uint64_t{2} << 20};  ///< Multiple of 4096 bytes, as direct I/O wants it.
  std::uint32_t slab_count = 16;            ///< Hard bound.
  Pinning pinning = Pinning::kPageable;     ///< As asked for; a limit may refuse it.
  HostMemorySource memory = {};             ///< Asked once, for all slabs; empty: the heap.
};

class HostSlabs;

/// One slab, back in its pool when this dies, which must be before the pool does. Movable.
class HostSlab {
 public:
  HostSlab() = default;
  HostSlab(HostSlab&& other) noexcept;
  HostSlab& operator=(HostSlab&& other) noexcept;
  ~HostSlab();

  DeviceSpan span() const { return span_; }

 private:
  friend class HostSlabs;
  HostSlab(HostSlabs& pool, std::uint32_t index, DeviceSpan span)
      : pool_(&pool), index_(index), span_(span) {}
  HostSlabs* pool_ = nullptr;
  std::uint32_t index_ = 0;
  DeviceSpan span_;
};

/// A bounded pool of equal blocks of host memory, between a device and disks. The latest slab that
/// came back goes out first, so that what was never needed takes no memory, unless it is pinned,
/// which takes all at once. Any thread.
class HostSlabs {
 public:
  /// Pins for `device`, which outlives the pool. Where that is refused the slabs are pageable.
  /// Throws ConfigError for senseless options, what the source of memory throws.
  HostSlabs(Device& device, const HostSlabsOptions& options);
  ~HostSlabs();  ///< All slabs must be back.
  HostSlabs(const HostSlabs&) = delete;
  HostSlabs& operator=(const HostSlabs&) = delete;

  /// None while all are out. Never waits.
  std::optional<HostSlab> take();

  std::uint32_t count() const { return options_.slab_count; }
  std::uint32_t available() const;
  Bytes slab_size() const { return options_.slab_size; }
  Bytes capacity() const { return options_.slab_size * options_.slab_count; }
  Pinning pinning() const { return pinning_; }
  const std::string& why_pageable() const { return why_pageable_; }  ///< Where pinning was refused.

 private:
  friend class HostSlab;
  void put_back(std::uint32_t index) noexcept;
  DeviceSpan span() const { return host_span(memory_.get(), capacity()); }

  Device& device_;
  const HostSlabsOptions options_;
  const std::shared_ptr<std::byte> memory_;
  Pinning pinning_ = Pinning::kPageable;
  std::string why_pageable_;

  mutable std::mutex mutex_;
  std::vector<std::uint32_t> free_;
};

}  // namespace spillway::device
