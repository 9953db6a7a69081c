#pragma once

#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/device/device.h"
#include "spillway/device/event.h"
#include "spillway/memory/page_memory.h"
#include "spillway/runtime/runtime.h"
#include "stream_marks.h"

namespace spillway::torch_binding {

/// A GPU whose tensors are under Spillway: its runtime, and moments of its streams. Any thread.
class ServedDevice {
 public:
  /// Made by the first call for that device; stays as long as the process. Throws one of Spillway's
  /// errors where it cannot be served.
  static ServedDevice& of(c10::DeviceIndex index);

  runtime::Runtime& runtime() const { return *runtime_; }
  /// Smaller blocks are left to LibTorch's allocator.
  Bytes min_storage() const { return min_storage_; }

  /// Kernels of that device may use its pages from now on.
  void admit(c10::DeviceIndex peer);

  /// Made by the program itself, who may destroy it at any time.
  bool is_of_program(c10::cuda::CUDAStream stream);

  /// When the stream has done all that this thread has given it so far.
  device::Event given_so_far(c10::cuda::CUDAStream stream);

 private:
  StreamMarks& marks_of(cudaStream_t stream);
  std::vector<std::shared_ptr<StreamMarks>> other_streams(cudaStream_t than);
  void follow_all(c10::cuda::CUDAStream stream);
  void lead_all(c10::cuda::CUDAStream stream);
  device::Event moment(c10::cuda::CUDAStream stream) noexcept;
  explicit ServedDevice(c10::DeviceIndex index);
  static bool is_capturing(c10::DeviceIndex index);
  static const char* objection_to_stream(c10::DeviceIndex index);

  const std::shared_ptr<device::Device> device_;
  Bytes min_storage_;
  memory::PageMemory* pages_ = nullptr;  ///< The runtime's.
  std::mutex mutex_;
  std::unordered_map<cudaStream_t, std::shared_ptr<StreamMarks>> marks_;
  std::atomic<bool> has_streams_of_program_{false};
  runtime::Runtime* runtime_ = nullptr;
};

}  // namespace spillway::torch_binding
