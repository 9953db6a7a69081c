// What the core calls once it has opened this library.

#include "cuda_allocator.h"
#include "device_library.h"
#include "spillway/device/cuda/cuda_backend.h"

extern "C" __attribute__((visibility("default"))) void spillway_serve_cuda() {
  spillway::torch_binding::install_cuda_allocator();
}

extern "C" __attribute__((visibility("default"))) void spillway_why_no_gpu(
    spillway::runtime::NoGpu& none) {
  const spillway::device::CudaFacts facts = spillway::device::cuda_facts();
  none = {facts.reason, facts.names_none};
}
