#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <optional>
#include <string>
#include <vector>

#include "spillway/device/device_span.h"
#include "spillway/topology/machine.h"

namespace spillway::device {

// The functions of CUDA that Spillway calls, one name each; those of the driver in the version that
// CUDA 13.0 has.
#define SPILLWAY_CUDA_RUNTIME(F)      \
  F(cudaDeviceCanAccessPeer)          \
  F(cudaDeviceEnablePeerAccess)       \
  F(cudaDeviceGetAttribute)           \
  F(cudaDeviceGetPCIBusId)            \
  F(cudaDriverGetVersion)             \
  F(cudaEventCreateWithFlags)         \
  F(cudaEventDestroy)                 \
  F(cudaEventElapsedTime)             \
  F(cudaEventQuery)                   \
  F(cudaEventRecord)                  \
  F(cudaEventSynchronize)             \
  F(cudaFree)                         \
  F(cudaGetDeviceCount)               \
  F(cudaGetDeviceProperties)          \
  F(cudaGetDriverEntryPointByVersion) \
  F(cudaGetErrorName)                 \
  F(cudaGetErrorString)               \
  F(cudaGetLastError)                 \
  F(cudaHostRegister)                 \
  F(cudaHostUnregister)               \
  F(cudaInitDevice)                   \
  F(cudaLaunchHostFunc)               \
  F(cudaMalloc)                       \
  F(cudaMemcpyAsync)                  \
  F(cudaMemcpyPeerAsync)              \
  F(cudaMemGetInfo)                   \
  F(cudaRuntimeGetVersion)            \
  F(cudaStreamCreateWithFlags)        \
  F(cudaStreamDestroy)                \
  F(cudaStreamIsCapturing)            \
  F(cudaStreamSynchronize)            \
  F(cudaStreamWaitEvent)              \
  F(cudaThreadExchangeStreamCaptureMode)
#define SPILLWAY_CUDA_DRIVER(F)    \
  F(cuCtxGetCurrent)               \
  F(cuCtxSetCurrent)               \
  F(cuDeviceGet)                   \
  F(cuDeviceGetAttribute)          \
  F(cuDevicePrimaryCtxRetain)      \
  F(cuMemAddressFree)              \
  F(cuMemAddressReserve)           \
  F(cuMemCreate)                   \
  F(cuMemGetAllocationGranularity) \
  F(cuMemMap)                      \
  F(cuMemRelease)                  \
  F(cuMemSetAccess)                \
  F(cuMemUnmap)

/// The functions, found at run time. Those of the driver are null where there is none.
struct CudaFunctions {
#define SPILLWAY_DECLARE(name) decltype(&::name) name = nullptr;
  SPILLWAY_CUDA_RUNTIME(SPILLWAY_DECLARE)
  SPILLWAY_CUDA_DRIVER(SPILLWAY_DECLARE)
#undef SPILLWAY_DECLARE

  /// What `error`, which a call of this thread has just returned, means, with the name that CUDA's
  /// documents have for it. Takes it from LibTorch, which would ask this thread and take it for its
  /// own.
  std::string text_of(cudaError_t error) const;

  /// The same for work of a device: errors after which the device is of no more use to this process
  /// are told as what they are.
  std::string failure(DeviceId device, cudaError_t error) const;
  /// The same for a call of the driver, which leaves nothing with the thread.
  std::string failure(DeviceId device, CUresult result) const;

  static bool is_of_a_lost_device(cudaError_t error);
  static bool is_of_a_lost_device(CUresult result);

  /// Whether a graph is made of what the stream is given; also where CUDA does not tell, but for a
  /// device that is lost.
  bool is_captured(cudaStream_t stream) const;
};

struct FoundCuda {
  const CudaFunctions* functions = nullptr;  ///< Null: see `reason`. Stays for ever.
  std::string reason;                        ///< With the way to mend it.
};

/// Looks for the runtime among what the process has loaded, and then where the system finds
/// libraries. Once found it is kept; what was not is looked for again. Any thread.
FoundCuda find_cuda();

/// Of a machine with these GPUs; nothing: it cannot be told.
std::string why_no_driver(const std::optional<std::vector<topology::Gpu>>& gpus);

/// "13.0" of 13000.
std::string release_of(int version);

}  // namespace spillway::device
