// The driver's functions on virtual memory.
#include <cuda.h>

#include <algorithm>

#include "../runtime/address_space.h"
#include "../runtime/calls.h"
#include "../runtime/devices.h"
#include "../runtime/failure.h"
#include "../runtime/fills.h"
#include "../runtime/ordering.h"
#include "../runtime/settings.h"
#include "mappings.h"

using namespace spillway::emulated;

namespace {

bool on_a_device(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && is_device(location.id);
}

// The runtime has the driver's numbers for errors.
CUresult loss_at(int device) { return static_cast<CUresult>(loss_of(device)); }
CUresult loss_at(CUdeviceptr address) {
  const auto range = AddressSpace::of_process().find(reinterpret_cast<const void*>(address));
  return range ? loss_at(range->device) : CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* which,
                                       CUmemAllocationGranularity_flags) {
  SPILLWAY_COUNT_CALL();
  if (!on_a_device(which->location)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = settings().grain;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long) {
  SPILLWAY_COUNT_CALL();
  if (settings().devices.empty()) return CUDA_ERROR_NO_DEVICE;
  if (bytes == 0 || bytes % settings().grain != 0 || (alignment & (alignment - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  *address = AddressSpace::of_process().reserve(current_device(), bytes, alignment);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  SPILLWAY_COUNT_CALL();
  if (const CUresult lost = loss_at(address); lost != CUDA_SUCCESS) return lost;
  AddressSpace& space = AddressSpace::of_process();
  const auto* start = reinterpret_cast<const void*>(address);
  const auto range = space.find(start);
  if (!range || range->kind != Kind::kReserved || range->begin != address ||
      range->bytes != bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (Mappings::of_process().any_in(address, bytes)) {
    die("cuMemAddressFree of " + hex(start) + ", where chunks are mapped; call cuMemUnmap before");
  }
  space.remove(start, Kind::kReserved);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* which, unsigned long long) {
  SPILLWAY_COUNT_CALL();
  if (!on_a_device(which->location)) return CUDA_ERROR_INVALID_DEVICE;
  if (const CUresult lost = loss_at(which->location.id); lost != CUDA_SUCCESS) return lost;
  return Mappings::of_process().create(handle, bytes, which->location.id,
                                       which->allocFlags.gpuDirectRDMACapable != 0);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  SPILLWAY_COUNT_CALL();
  return Mappings::of_process().release(handle);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  SPILLWAY_COUNT_CALL();
  return Mappings::of_process().retain(handle, reinterpret_cast<std::uintptr_t>(address));
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* which,
                                                CUmemGenericAllocationHandle handle) {
  SPILLWAY_COUNT_CALL();
  const auto device = Mappings::of_process().device_of(handle);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *which = {};
  which->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  which->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  which->location.id = *device;
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  SPILLWAY_COUNT_CALL();
  if (const CUresult lost = loss_at(address); lost != CUDA_SUCCESS) return lost;
  if (offset != 0) return CUDA_ERROR_INVALID_VALUE;  // As the driver of today has it.
  return Mappings::of_process().map(address, bytes, handle);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* who,
                        size_t count) {
  SPILLWAY_COUNT_CALL();
  if (const CUresult lost = loss_at(address); lost != CUDA_SUCCESS) return lost;
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i)
    if (!on_a_device(who[i].location)) return CUDA_ERROR_INVALID_DEVICE;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i)
    result = Mappings::of_process().set_access(address, bytes, who[i].location.id, who[i].flags);
  return result;
}

// Does not wait for the device: who unmaps too early takes the memory from under its work.
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  SPILLWAY_COUNT_CALL();
  if (const CUresult lost = loss_at(address); lost != CUDA_SUCCESS) return lost;
  if (!Mappings::of_process().is_whole(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  ordering::take_away(reinterpret_cast<const void*>(address), bytes, "cuMemUnmap");
  return Mappings::of_process().unmap(address, bytes);
}

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
  SPILLWAY_COUNT_CALL();
  auto* words = reinterpret_cast<unsigned*>(address);
  const cudaError_t error =
      fill(words, count * sizeof(unsigned), stream, [=] { std::fill_n(words, count, value); });
  return error == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
}
