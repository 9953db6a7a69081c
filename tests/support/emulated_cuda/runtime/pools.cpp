// Functions of CUDA on memory pools. Each device has the default pool alone; it keeps nothing back.
#include <cuda_runtime_api.h>

#include <cstdint>

#include "address_space.h"
#include "calls.h"
#include "devices.h"
#include "failure.h"

using namespace spillway::emulated;

namespace {

cudaMemPool_t pool_of(int device) {
  return reinterpret_cast<cudaMemPool_t>(static_cast<std::uintptr_t>(device) + 1);
}
int device_of(cudaMemPool_t pool) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(pool)) - 1;
}

cudaError_t no_pool() {
  return fail(cudaErrorInvalidValue, "the emulated CUDA has default pools alone");
}

}  // namespace

extern "C" {

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  SPILLWAY_COUNT_CALL();
  if (!is_device(device)) return fail(cudaErrorInvalidDevice);
  *pool = pool_of(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  SPILLWAY_COUNT_CALL();
  return cudaDeviceGetDefaultMemPool(pool, device);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void*) {
  SPILLWAY_COUNT_CALL();
  return is_device(device_of(pool)) ? cudaSuccess : no_pool();
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
  SPILLWAY_COUNT_CALL();
  if (!is_device(device_of(pool))) return no_pool();
  switch (which) {
    case cudaMemPoolAttrReservedMemCurrent:
    case cudaMemPoolAttrUsedMemCurrent:
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:
      *static_cast<std::uint64_t*>(value) = AddressSpace::of_process().used(device_of(pool));
      return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
      *static_cast<std::uint64_t*>(value) = 0;
      return cudaSuccess;
    default: *static_cast<int*>(value) = 1; return cudaSuccess;
  }
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc*, size_t) {
  SPILLWAY_COUNT_CALL();
  return is_device(device_of(pool)) ? cudaSuccess : no_pool();
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  SPILLWAY_COUNT_CALL();
  return is_device(device_of(pool)) ? cudaSuccess : no_pool();
}
}
