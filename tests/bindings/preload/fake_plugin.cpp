// Stands for a plugin that uses LibTorch, opened by a program that does not: its tensors come from
// LibTorch's allocator, on two threads.

#include <thread>

namespace c10 {
struct Allocator;
Allocator* GetCPUAllocator();
}  // namespace c10

extern "C" void import_torch() {
  c10::GetCPUAllocator();
  std::thread([] { c10::GetCPUAllocator(); }).join();
}
