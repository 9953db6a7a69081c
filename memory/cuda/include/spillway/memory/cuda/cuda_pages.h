#pragma once

#include <memory>
#include <optional>

#include "spillway/base/bytes.h"
#include "spillway/device/device.h"
#include "spillway/memory/page_memory.h"

namespace spillway::memory {

/// Pages of a GPU, whose frames are pieces of its physical memory. Nobody reports accesses: what is
/// out ends the program that touches it, by an illegal address. `page_size`: a multiple of the
/// device's granularity; none: the larger of that and 2 MiB. `make_frame` throws Error where the
/// device has no memory left. Throws UnsupportedError, with the way to mend it, where the device
/// has no virtual memory; Error for a device that is not CUDA's; ConfigError for a senseless size.
std::unique_ptr<PageMemory> make_cuda_pages(std::shared_ptr<device::Device> device,
                                            std::optional<Bytes> page_size = {});

/// Lets kernels of another GPU, which the machine allows to reach this one's memory, read and write
/// pages that are there, from now on. `pages`: made by `make_cuda_pages`. Throws Error where the
/// driver refuses. Any thread.
void admit_peer(PageMemory& pages, device::DeviceId peer);

}  // namespace spillway::memory
