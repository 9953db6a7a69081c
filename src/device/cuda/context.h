#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "functions.h"
#include "spillway/device/device.h"

namespace spillway::device {

/// What the device, its queues and its events share: CUDA's functions, the context of the device in
/// which LibTorch works too, and events to be used again. Any thread.
class CudaContext {
 public:
  /// Makes the context where nobody has yet, which takes some hundred MiB of the device. Throws
  /// Error where that is refused.
  CudaContext(const CudaFunctions& cuda, DeviceId device, std::vector<DeviceId> peers);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const CudaFunctions& cuda() const { return cuda_; }
  DeviceId device() const { return device_; }
  const std::vector<DeviceId>& peers() const { return peers_; }

  /// Lets copies between the two go past the host, where the machine can do that.
  void connect(DeviceId peer);

  /// An event of CUDA that nothing uses. Null, with `error` set, where CUDA refuses one.
  cudaEvent_t take_event(Timing timing, cudaError_t& error);
  /// Calls nothing of CUDA, as it may happen on a thread that may not.
  void put_back(cudaEvent_t event, Timing timing) noexcept;

 private:
  friend class OnDevice;
  std::vector<cudaEvent_t>& free_events(Timing timing) {
    return timing == Timing::kKept ? timed_events_ : events_;
  }

  const CudaFunctions& cuda_;
  const DeviceId device_;
  const std::vector<DeviceId> peers_;
  CUcontext context_ = nullptr;

  std::mutex mutex_;
  std::vector<cudaEvent_t> events_;
  std::vector<cudaEvent_t> timed_events_;
  std::vector<DeviceId> connected_;
};

/// For as long as this lives, the calling thread's calls of CUDA mean the device, and do not break
/// what another thread captures into a graph. It has its former context back afterwards: none, if
/// it had none, as the runtime's own calls would make one on the first device.
class OnDevice {
 public:
  explicit OnDevice(const CudaContext& context);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const CudaContext& context_;
  CUcontext before_ = nullptr;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace spillway::device
