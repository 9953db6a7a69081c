#pragma once

#include <memory>

#include "spillway/device/device.h"
#include "spillway/device/host_slabs.h"
#include "spillway/swap/spill_store.h"
#include "store/notifier.h"
#include "store/tiered/direct_transfers.h"

namespace spillway::swap {

/// Host memory in front of `lower`, which notifies `notifier`. Pages go into `slabs`, each as large
/// as an extent, by queues of `device`, in whose memory the pages of transfers lie; the oldest go
/// on to `lower` where room gets short. What finds no slab goes to `lower` at once, and comes back
/// from there at once; where `direct` reaches its files, without a slab. `disks` is told of what
/// goes to `lower` or its files; both may be null.
std::unique_ptr<SpillStore> make_tiered_store(std::shared_ptr<device::Device> device,
                                              std::unique_ptr<device::HostSlabs> slabs,
                                              std::unique_ptr<SpillStore> lower,
                                              std::shared_ptr<Notifier> notifier,
                                              DiskObserver* disks = nullptr,
                                              std::unique_ptr<DirectTransfers> direct = nullptr);

}  // namespace spillway::swap
