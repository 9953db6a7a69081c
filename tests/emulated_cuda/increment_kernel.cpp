#include "increment_kernel.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <memory>

#include "support/emulated_cuda/runtime/emulation.h"

// What nvcc's code calls before main for each kernel.
extern "C" void __cudaRegisterFunction(void** binary, const char* function, char* device_function,
                                       const char* name, int thread_limit, uint3* thread,
                                       uint3* block, dim3* block_size, dim3* grid_size,
                                       int* warp_size);

namespace spillway::emulated {
namespace {

constexpr const char* kIncrement = "_Z9incrementPfl";
constexpr const char* kUnknown = "_Z7unknownv";

// The functions that stand for the kernels in the host's code; only their addresses are used.
void increment_stub() {}
void unknown_stub() { increment_stub(); }

struct Increment {
  float* data;
  std::int64_t count;

  static void run(void* argument) {
    const std::unique_ptr<Increment> mine(static_cast<Increment*>(argument));
    emu_cuda_check(mine->data, static_cast<std::size_t>(mine->count) * sizeof(float), "increment");
    for (std::int64_t i = 0; i < mine->count; ++i) mine->data[i] += 1;
  }
};

void enqueue_increment(cudaStream_t stream, const unsigned*, const unsigned*, void** arguments) {
  auto work = std::make_unique<Increment>(
      Increment{*static_cast<float**>(arguments[0]), *static_cast<std::int64_t*>(arguments[1])});
  emu_cuda_use(stream, work->data, static_cast<std::size_t>(work->count) * sizeof(float), 1,
               "increment");
  emu_cuda_enqueue(stream, "increment", Increment::run, work.release());
}

const void* address_of(void (*function)()) { return reinterpret_cast<const void*>(function); }

void add(void (*function)(), const char* name) {
  __cudaRegisterFunction(nullptr, static_cast<const char*>(address_of(function)), nullptr, name, -1,
                         nullptr, nullptr, nullptr, nullptr, nullptr);
}

void register_kernels() {
  static const bool once = [] {
    add(increment_stub, kIncrement);
    add(unknown_stub, kUnknown);
    emu_cuda_add_launcher(kIncrement, enqueue_increment);
    return true;
  }();
  ASSERT_TRUE(once);
}

}  // namespace

void launch_increment(float* data, std::int64_t count, cudaStream_t stream) {
  register_kernels();
  void* arguments[] = {&data, &count};
  ASSERT_EQ(
      cudaLaunchKernel(address_of(increment_stub), {1, 1, 1}, {1, 1, 1}, arguments, 0, stream),
      cudaSuccess);
}

cudaError_t launch_unknown(cudaStream_t stream) {
  register_kernels();
  return cudaLaunchKernel(address_of(unknown_stub), {1, 1, 1}, {1, 1, 1}, nullptr, 0, stream);
}

}  // namespace spillway::emulated
