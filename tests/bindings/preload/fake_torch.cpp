// Stands for libtorch_cpu.so and libc10.so: the functions that the preload interposes, and the
// constants among which it finds the version.

#include <cstdio>

// LibTorch writes the class name, its own name and its version into exported models.
#ifdef FAKE_TORCH_VERSION
extern "C" const char fake_torch_constants[] =
    "GraphEncoder\0then_branch\0pytorch\0" FAKE_TORCH_VERSION "\0Custom opset domain: '";
#else
extern "C" const char fake_torch_constants[] = "GraphEncoder\0then_branch\0pytorch\0of no version";
#endif

namespace torch::autograd {
class Engine;

void set_default_engine_stub(Engine& (*stub)()) {
  std::printf("torch: stub %s\n", stub == nullptr ? "none" : "given");
}
}  // namespace torch::autograd

namespace c10 {
struct Allocator;

Allocator* GetCPUAllocator() {
  std::puts("torch: allocator given");
  return nullptr;
}
}  // namespace c10
