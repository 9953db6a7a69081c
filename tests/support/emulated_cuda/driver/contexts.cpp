// The driver's functions on devices, contexts and addresses. A device has its primary context
// alone.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "../runtime/address_space.h"
#include "../runtime/calls.h"
#include "../runtime/devices.h"
#include "../runtime/settings.h"

using namespace spillway::emulated;

namespace {

CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1);
}
int device_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) {
  SPILLWAY_COUNT_CALL();
  return settings().devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  SPILLWAY_COUNT_CALL();
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  SPILLWAY_COUNT_CALL();
  *count = static_cast<int>(settings().devices.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  SPILLWAY_COUNT_CALL();
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  SPILLWAY_COUNT_CALL();
  cudaDeviceProp all;
  if (cudaGetDeviceProperties(&all, device) != cudaSuccess) return CUDA_ERROR_INVALID_DEVICE;
  *uuid = all.uuid;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  SPILLWAY_COUNT_CALL();
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) {
    *value = settings().virtual_memory ? 1 : 0;
    return CUDA_SUCCESS;
  }
  if (which == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) {
    *value = 1;
    return CUDA_SUCCESS;
  }
  // The runtime has the same numbers for the attributes.
  cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(which), device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  SPILLWAY_COUNT_CALL();
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  SPILLWAY_COUNT_CALL();
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = context_of(device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  SPILLWAY_COUNT_CALL();
  return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  SPILLWAY_COUNT_CALL();
  *context = context_of(current_device());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  SPILLWAY_COUNT_CALL();
  if (context == nullptr) return CUDA_SUCCESS;
  if (!is_device(device_of(context))) return CUDA_ERROR_INVALID_CONTEXT;
  set_current_device(device_of(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  SPILLWAY_COUNT_CALL();
  *device = current_device();
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute which, CUdeviceptr address) {
  SPILLWAY_COUNT_CALL();
  const auto range = AddressSpace::of_process().find(reinterpret_cast<const void*>(address));
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  const bool of_host = range->kind == Kind::kHost || range->kind == Kind::kRegistered;
  switch (which) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = range->device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(value) = context_of(range->device);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = of_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(value) = range->begin;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(value) = range->bytes;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuMemGetInfo(size_t* left, size_t* total) {
  SPILLWAY_COUNT_CALL();
  return cudaMemGetInfo(left, total) == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  SPILLWAY_COUNT_CALL();
  switch (error) {
    case CUDA_SUCCESS: *text = "CUDA_SUCCESS"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE: *text = "CUDA_ERROR_INVALID_VALUE"; return CUDA_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; return CUDA_SUCCESS;
    case CUDA_ERROR_NO_DEVICE: *text = "CUDA_ERROR_NO_DEVICE"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_DEVICE: *text = "CUDA_ERROR_INVALID_DEVICE"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_CONTEXT: *text = "CUDA_ERROR_INVALID_CONTEXT"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_HANDLE: *text = "CUDA_ERROR_INVALID_HANDLE"; return CUDA_SUCCESS;
    case CUDA_ERROR_NOT_SUPPORTED: *text = "CUDA_ERROR_NOT_SUPPORTED"; return CUDA_SUCCESS;
    default: *text = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  SPILLWAY_COUNT_CALL();
  return cuGetErrorName(error, text);
}
}
