// The engine's suite on the GPU that this process finds: a real one, or the emulated one where its
// runtime comes first in LD_LIBRARY_PATH. Its pages are as small as it can map.
#include <array>

#include "../pages_cases.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/device/cuda/virtual_memory.h"
#include "spillway/memory/cuda/cuda_pages.h"

namespace spillway::swap {

std::vector<PagesCase> all_pages() { return {std::nullopt}; }

std::string why_no_device() { return device::cuda_backend().probe().reason; }

std::shared_ptr<device::Device> open_paged_device() {
  return device::open_device({device::DeviceKind::kCuda, 0}, std::array{device::cuda_backend()});
}

std::unique_ptr<memory::PageMemory> pages_of(const std::shared_ptr<device::Device>& device) {
  return memory::make_cuda_pages(device, device::CudaVirtualMemory(*device).granularity());
}

}  // namespace spillway::swap
