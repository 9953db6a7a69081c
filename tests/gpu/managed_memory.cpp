// The peer that does nothing: preloaded, it lets LibTorch take managed memory, which the driver
// pages. SPILLWAY_TEST_GPU_BYTES is how much of the GPU is left to it; the rest is taken away
// first.
#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>

extern "C" int cudaMallocManaged(void** address, std::size_t size, unsigned flags);
extern "C" int cudaMemGetInfo(std::size_t* free, std::size_t* total);

extern "C" int cudaMalloc(void** address, std::size_t size) {
  static const int taken = [] {
    const auto take =
        reinterpret_cast<int (*)(void**, std::size_t)>(dlsym(RTLD_NEXT, "cudaMalloc"));
    const char* const text = std::getenv("SPILLWAY_TEST_GPU_BYTES");
    const std::size_t left = text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
    std::size_t free = 0, total = 0;
    void* rest = nullptr;
    if (left == 0 || cudaMemGetInfo(&free, &total) != 0 || free <= left) return 0;
    return take(&rest, free - left);
  }();
  constexpr unsigned kAttachGlobal = 1;
  return taken != 0 ? taken : cudaMallocManaged(address, size, kAttachGlobal);
}
