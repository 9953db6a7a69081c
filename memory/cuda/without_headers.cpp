// What a build without CUDA's headers has in the place of a GPU's pages.
#include "spillway/base/error.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/memory/cuda/cuda_pages.h"

namespace spillway::memory {

std::unique_ptr<PageMemory> make_cuda_pages(std::shared_ptr<device::Device> device,
                                            std::optional<Bytes> /*page_size*/) {
  throw UnsupportedError("device {} has no pages: {}", device->id(), device::cuda_facts().reason);
}

void admit_peer(PageMemory& /*pages*/, device::DeviceId /*peer*/) { SPILLWAY_ASSERT(false); }

}  // namespace spillway::memory
