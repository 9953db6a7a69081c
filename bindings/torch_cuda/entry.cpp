// What the core calls once it has opened this library.

#include "cuda_allocator.h"
#include "device_library.h"

extern "C" __attribute__((visibility("default"))) void spillway_serve_cuda() {
  spillway::torch_binding::install_cuda_allocator();
}
