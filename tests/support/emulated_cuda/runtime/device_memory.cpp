// Functions of CUDA that allocate and free memory of the device, and tell what an address is.
#include <cuda_runtime_api.h>

#include <cstring>
#include <string>

#include "address_space.h"
#include "calls.h"
#include "capture.h"
#include "devices.h"
#include "emulation.h"
#include "failure.h"
#include "ordering.h"
#include "settings.h"
#include "stream.h"

using namespace spillway::emulated;

namespace {

cudaError_t out_of_memory(int device, std::size_t bytes) {
  return fail(cudaErrorMemoryAllocation,
              std::to_string(bytes) + " bytes are wanted of device " + std::to_string(device) +
                  ", which has " +
                  std::to_string(settings().memory - AddressSpace::of_process().used(device)) +
                  " of " + std::to_string(settings().memory) + " left");
}

cudaError_t no_allocation(const void* address) {
  return fail(cudaErrorInvalidValue,
              "no allocation of a device begins at " + hex(address) + ", or it was freed before");
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  SPILLWAY_COUNT_CALL();
  if (settings().devices.empty()) return fail(cudaErrorNoDevice);
  if (const cudaError_t lost = error_of_lost(current_device()); lost != cudaSuccess) return lost;
  *address = nullptr;
  if (const cudaError_t unsafe = may_be_unsafe(__func__); unsafe != cudaSuccess) return unsafe;
  if (bytes == 0) return cudaSuccess;
  *address = AddressSpace::of_process().allocate(current_device(), bytes);
  return *address == nullptr ? out_of_memory(current_device(), bytes) : cudaSuccess;
}

// Waits for the device: nothing that it was given before can still use the memory.
cudaError_t cudaFree(void* address) {
  SPILLWAY_COUNT_CALL();
  if (address == nullptr) return cudaSuccess;
  if (const cudaError_t unsafe = may_be_unsafe(__func__); unsafe != cudaSuccess) return unsafe;
  AddressSpace& space = AddressSpace::of_process();
  const auto range = space.find(address);
  if (!range || range->kind != Kind::kDevice || range->freed) return no_allocation(address);
  wait_for_device(range->device);
  ordering::take_away(address, range->bytes, "cudaFree");
  return space.free(address) ? cudaSuccess : no_allocation(address);
}

cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t handle) {
  SPILLWAY_COUNT_CALL();
  if (settings().devices.empty()) return fail(cudaErrorNoDevice);
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  CUstream_st& stream = living_stream(handle);
  if (const cudaError_t error = may_not_capture(stream, __func__); error != cudaSuccess)
    return error;
  AddressSpace& space = AddressSpace::of_process();
  *address = space.allocate(stream.device(), bytes);
  if (*address == nullptr) {
    // What was freed in streams comes back when they get there. The host learns nothing by this
    // wait.
    drain_device(stream.device());
    *address = space.allocate(stream.device(), bytes);
  }
  if (*address == nullptr) return out_of_memory(stream.device(), bytes);
  // It is there for what comes later in this stream.
  order_with_legacy(stream);
  ordering::begin(stream.id());
  ordering::use(stream.id(), *address, bytes, Use::kWrite, "cudaMallocAsync");
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t handle) {
  SPILLWAY_COUNT_CALL();
  if (address == nullptr) return cudaSuccess;
  CUstream_st& stream = living_stream(handle);
  if (const cudaError_t error = may_not_capture(stream, __func__); error != cudaSuccess)
    return error;
  AddressSpace& space = AddressSpace::of_process();
  const auto range = space.find(address);
  if (!range || range->begin != reinterpret_cast<std::uintptr_t>(address))
    return no_allocation(address);
  order_with_legacy(stream);
  ordering::begin(stream.id());
  ordering::use(stream.id(), address, range->bytes, Use::kWrite, "cudaFreeAsync");
  if (!space.mark_freed(address)) return no_allocation(address);
  stream.push("free", CUstream_st::Delay::kBySettings, [&space, address] { space.free(address); });
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* left, size_t* total) {
  SPILLWAY_COUNT_CALL();
  if (settings().devices.empty()) return fail(cudaErrorNoDevice);
  *total = settings().memory;
  *left = *total - AddressSpace::of_process().used(current_device());
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* all, const void* address) {
  SPILLWAY_COUNT_CALL();
  std::memset(all, 0, sizeof *all);
  all->type = cudaMemoryTypeUnregistered;
  all->device = cudaInvalidDeviceId;
  const auto range = AddressSpace::of_process().find(address);
  if (!range) return cudaSuccess;
  const bool of_host = range->kind == Kind::kHost || range->kind == Kind::kRegistered;
  all->type = of_host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  all->device = range->device;
  all->devicePointer = const_cast<void*>(address);
  all->hostPointer = of_host ? const_cast<void*>(address) : nullptr;
  return cudaSuccess;
}

size_t emu_cuda_used(int device) { return AddressSpace::of_process().used(device); }
}
