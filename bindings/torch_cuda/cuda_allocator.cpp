#include "cuda_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdint>

#include "forwarding_allocator.h"

namespace spillway::torch_binding {

void install_cuda_allocator() {
  constexpr std::uint8_t kHighestPriority = 255;
  auto& place = c10::cuda::CUDACachingAllocator::allocator;
  static auto* const allocator = new ForwardingAllocator(*place.load());  // Storages outlive it.
  place.store(allocator);
  // LibTorch asks there, too, and not for the one above.
  c10::SetAllocator(c10::DeviceType::CUDA, allocator, kHighestPriority);
}

}  // namespace spillway::torch_binding
