#pragma once

#include <memory>

#include "spillway/device/device.h"
#include "spillway/device/host_slabs.h"
#include "spillway/swap/spill_store.h"
#include "store/notifier.h"

namespace spillway::swap {

/// Host memory in front of `lower`, which notifies `notifier`. Pages go into `slabs`, each as large
/// as an extent, by queues of `device`, in whose memory the pages of transfers lie; the oldest go
/// on to `lower` where room gets short. What finds no slab goes to `lower` at once, and comes back
/// from there at once. `disks` is told of what `lower` carries; may be null.
std::unique_ptr<SpillStore> make_tiered_store(std::shared_ptr<device::Device> device,
                                              std::unique_ptr<device::HostSlabs> slabs,
                                              std::unique_ptr<SpillStore> lower,
                                              std::shared_ptr<Notifier> notifier,
                                              DiskObserver* disks = nullptr);

}  // namespace spillway::swap
