#pragma once

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <future>

namespace spillway::emulated {

/// Keeps the current stream from going on, until it is let go or dies.
class HeldStream {
 public:
  HeldStream() { cudaLaunchHostFunc(c10::cuda::getCurrentCUDAStream().stream(), &wait, &free_); }
  ~HeldStream() { let_go(); }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

  void let_go() {
    if (is_held_) go_.set_value();
    is_held_ = false;
    cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream().stream());
  }

 private:
  static void wait(void* future) { static_cast<std::future<void>*>(future)->wait(); }

  std::promise<void> go_;
  std::future<void> free_ = go_.get_future();
  bool is_held_ = true;
};

}  // namespace spillway::emulated
