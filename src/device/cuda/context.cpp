#include "context.h"

#include <algorithm>
#include <utility>

#include "spillway/base/error.h"

namespace spillway::device {
namespace {

unsigned flags_of(Timing timing) {
  // Who waits sleeps: the cores belong to the trainer.
  return timing == Timing::kKept ? cudaEventBlockingSync
                                 : cudaEventBlockingSync | cudaEventDisableTiming;
}

}  // namespace

CudaContext::CudaContext(const CudaFunctions& cuda, DeviceId device, std::vector<DeviceId> peers)
    : cuda_(cuda), device_(device), peers_(std::move(peers)) {
  const cudaError_t error = cuda.cudaInitDevice(device.index, 0, 0);
  if (error != cudaSuccess) {
    const bool is_taken =
        error == cudaErrorMemoryAllocation || error == cudaErrorDevicesUnavailable;
    throw Error("device {} cannot be opened: {}{}", device, cuda.text_of(error),
                is_taken ? "; nvidia-smi shows whether another process holds it" : "");
  }
  // Kept to the end of the process: others may use by then what they have found here.
  CUdevice ordinal = 0;
  CUresult result = cuda.cuDeviceGet(&ordinal, device.index);
  if (result == CUDA_SUCCESS) result = cuda.cuDevicePrimaryCtxRetain(&context_, ordinal);
  if (result != CUDA_SUCCESS)
    throw Error("device {} cannot be opened: the driver refuses its context: {}", device,
                cuda.failure(device, result));
}

CudaContext::~CudaContext() {
  const OnDevice on(*this);
  for (const auto* events : {&events_, &timed_events_})
    for (cudaEvent_t event : *events) cuda_.cudaEventDestroy(event);
}

void CudaContext::connect(DeviceId peer) {
  const std::lock_guard lock(mutex_);
  if (std::find(connected_.begin(), connected_.end(), peer) != connected_.end()) return;
  connected_.push_back(peer);
  int is_possible = 0;
  cudaError_t error = cuda_.cudaDeviceCanAccessPeer(&is_possible, device_.index, peer.index);
  if (error == cudaSuccess && is_possible != 0) {
    const OnDevice on(*this);
    error = cuda_.cudaDeviceEnablePeerAccess(peer.index, 0);
  }
  // Whatever refused, LibTorch may have done it before, and else copies take the way by the host.
  if (error != cudaSuccess) cuda_.cudaGetLastError();
}

cudaEvent_t CudaContext::take_event(Timing timing, cudaError_t& error) {
  error = cudaSuccess;
  {
    const std::lock_guard lock(mutex_);
    auto& events = free_events(timing);
    if (!events.empty()) {
      cudaEvent_t const event = events.back();
      events.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  error = cuda_.cudaEventCreateWithFlags(&event, flags_of(timing));
  return error == cudaSuccess ? event : nullptr;
}

void CudaContext::put_back(cudaEvent_t event, Timing timing) noexcept {
  const std::lock_guard lock(mutex_);
  free_events(timing).push_back(event);
}

OnDevice::OnDevice(const CudaContext& context) : context_(context) {
  const CudaFunctions& cuda = context_.cuda_;
  cuda.cuCtxGetCurrent(&before_);
  if (before_ != context_.context_) cuda.cuCtxSetCurrent(context_.context_);
  cuda.cudaThreadExchangeStreamCaptureMode(&mode_);
}

OnDevice::~OnDevice() {
  const CudaFunctions& cuda = context_.cuda_;
  cuda.cudaThreadExchangeStreamCaptureMode(&mode_);
  if (before_ != context_.context_) cuda.cuCtxSetCurrent(before_);
}

}  // namespace spillway::device
