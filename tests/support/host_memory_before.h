#pragma once

#include <memory>
#include <utility>

#include "spillway/device/cpu.h"
#include "store/tiered/factory.h"

namespace spillway::swap {

/// `lower` behind so many slabs of host memory, for pages of a device.
inline std::unique_ptr<SpillStore> host_memory_before(
    std::unique_ptr<SpillStore> lower, std::uint32_t slabs, std::shared_ptr<Notifier> notifier,
    std::shared_ptr<device::Device> device = device::make_cpu_device()) {
  auto pool = std::make_unique<device::HostSlabs>(
      *device, device::HostSlabsOptions{.slab_size = Bytes(kExtentBytes), .slab_count = slabs});
  return make_tiered_store(std::move(device), std::move(pool), std::move(lower),
                           std::move(notifier));
}

}  // namespace spillway::swap
