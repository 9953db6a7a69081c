#include "cpu_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace spillway::torch_binding {
namespace {

// Deleters get no user pointer beside the memory itself, so this one is process-wide.
std::atomic<runtime::Runtime*> current{nullptr};
std::atomic<bool> detached{false};

// In a forked child blocks of the parent come back too, and are kept: it may not move its parent's
// pages. Its own blocks have a deleter of their own.
void* allocate_detached(std::size_t size) {
  void* block = nullptr;
  if (::posix_memalign(&block, 64, size) != 0) throw std::bad_alloc();
  return block;
}

void release_detached(void* memory) { std::free(memory); }

void release(void* memory) {
  if (detached.load(std::memory_order_relaxed)) return;
  current.load(std::memory_order_relaxed)->deallocate(memory);
}

class PagedCpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    if (size == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    const bool is_child = detached.load(std::memory_order_relaxed);
    void* memory = is_child ? allocate_detached(size)
                            : current.load(std::memory_order_relaxed)->allocate(size);
    // oneDNN asserts that the context is the data pointer itself.
    return {memory, memory, is_child ? &release_detached : &release,
            c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }
};

}  // namespace

void install_cpu_allocator(runtime::Runtime& runtime) {
  current.store(&runtime);
  static auto* allocator = new PagedCpuAllocator;  // Storages outlive static destructors.
  constexpr std::uint8_t kHighestPriority = 255;
  c10::SetAllocator(c10::DeviceType::CPU, allocator, kHighestPriority);
}

void detach_cpu_allocator() noexcept { detached.store(true); }

}  // namespace spillway::torch_binding
