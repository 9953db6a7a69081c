// Registration and launch of kernels. Their code is for a GPU: a launch runs what a test or the
// operator library has named for the kernel, and is refused otherwise.
#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "calls.h"
#include "capture.h"
#include "emulation.h"
#include "failure.h"
#include "ordering.h"
#include "settings.h"
#include "stream.h"

namespace spillway::emulated {
namespace {

using HostKernel = void (*)(const unsigned grid[3], const unsigned block[3], void** arguments);
using Launcher = void (*)(cudaStream_t, const unsigned grid[3], const unsigned block[3],
                          void** arguments);

struct Kernels {
  std::mutex mutex;
  std::unordered_map<const void*, const char*>
      names;  // Of the functions that stand for kernels in the host's code.
  std::map<std::string, HostKernel> host_kernels;
  std::map<std::string, Launcher> launchers;
};

Kernels& kernels() {
  static auto* all = new Kernels;
  return *all;
}

std::string mangled_name(const void* function) {
  const std::lock_guard lock(kernels().mutex);
  const auto at = kernels().names.find(function);
  return at == kernels().names.end() ? "" : at->second;
}

std::string readable(const std::string& name, const void* function) {
  if (name.empty()) return "a function at " + hex(function) + " that was never registered";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

template <class Functions>
typename Functions::mapped_type find(const Functions& functions, const std::string& name) {
  const std::lock_guard lock(kernels().mutex);
  const auto at = functions.find(name);
  return at == functions.end() ? nullptr : at->second;
}

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** arguments,
                   cudaStream_t handle) {
  if (settings().devices.empty()) return fail(cudaErrorNoDevice);
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr)
    return fail(cudaErrorInvalidResourceHandle,
                "the stream of a launch was destroyed or never made");
  const std::string name = mangled_name(function);
  const unsigned grid_sizes[] = {grid.x, grid.y, grid.z};
  const unsigned block_sizes[] = {block.x, block.y, block.z};
  if (const Launcher launcher = find(kernels().launchers, name)) {
    emu_cuda_begin(handle);
    launcher(handle, grid_sizes, block_sizes, arguments);
    return cudaSuccess;
  }
  if (const HostKernel kernel = find(kernels().host_kernels, name)) {
    if (const cudaError_t error = may_not_capture(*stream, name.c_str()); error != cudaSuccess)
      return error;
    emu_cuda_begin(handle);
    stream->drain();
    kernel(grid_sizes, block_sizes, arguments);
    return cudaSuccess;
  }
  return fail(cudaErrorLaunchFailure, "nothing emulates the kernel " + readable(name, function));
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};

std::vector<Configuration>& configurations() {
  thread_local std::vector<Configuration> pushed;
  return pushed;
}

}  // namespace
}  // namespace spillway::emulated

using namespace spillway::emulated;

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  SPILLWAY_COUNT_CALL();
  static void* handle = nullptr;
  return &handle;
}

void __cudaRegisterFatBinaryEnd(void**) { SPILLWAY_COUNT_CALL(); }
void __cudaUnregisterFatBinary(void**) { SPILLWAY_COUNT_CALL(); }
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {
  SPILLWAY_COUNT_CALL();
}

void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  SPILLWAY_COUNT_CALL();
  const std::lock_guard lock(kernels().mutex);
  kernels().names[function] = name;
}

// <<<...>>> pushes, and the function that stands for the kernel pops before it launches.
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  SPILLWAY_COUNT_CALL();
  configurations().push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  SPILLWAY_COUNT_CALL();
  if (configurations().empty()) return fail(cudaErrorMissingConfiguration);
  const Configuration last = configurations().back();
  configurations().pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  std::memcpy(stream, &last.stream, sizeof last.stream);
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  SPILLWAY_COUNT_CALL();
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t,
                               cudaStream_t stream) {
  SPILLWAY_COUNT_CALL();
  return launch(kernel, grid, block, arguments, stream);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t,
                             cudaStream_t stream) {
  SPILLWAY_COUNT_CALL();
  return launch(function, grid, block, arguments, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                        void** arguments, size_t, cudaStream_t stream) {
  SPILLWAY_COUNT_CALL();
  return launch(function, grid, block, arguments, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* function,
                                void** arguments) {
  SPILLWAY_COUNT_CALL();
  return launch(function, how->gridDim, how->blockDim, arguments, how->stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* all, const void*) {
  SPILLWAY_COUNT_CALL();
  std::memset(all, 0, sizeof *all);
  all->maxThreadsPerBlock = 1024;
  all->binaryVersion = all->ptxVersion = settings().capability;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  SPILLWAY_COUNT_CALL();
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   size_t, unsigned) {
  SPILLWAY_COUNT_CALL();
  *blocks = 2;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  SPILLWAY_COUNT_CALL();
  *blocks = 2;
  return cudaSuccess;
}

void emu_cuda_add_kernel(const char* name, HostKernel kernel) {
  const std::lock_guard lock(kernels().mutex);
  kernels().host_kernels[name] = kernel;
}

void emu_cuda_add_launcher(const char* name, Launcher launcher) {
  const std::lock_guard lock(kernels().mutex);
  kernels().launchers[name] = launcher;
}
}
