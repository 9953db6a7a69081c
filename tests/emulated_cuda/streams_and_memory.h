#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <future>

namespace spillway::emulated {

/// Holds a stream up until it is opened: what is submitted behind it has not begun.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) : opened_(open_.get_future().share()) {
    EXPECT_EQ(cudaLaunchHostFunc(
                  stream, [](void* gate) { static_cast<Gate*>(gate)->pass(); }, this),
              cudaSuccess);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() { open_.set_value(); }

 private:
  void pass() { opened_.wait(); }

  std::promise<void> open_;
  std::shared_future<void> opened_;
};

/// A stream that has no order with the default stream.
class FreeStream {
 public:
  FreeStream() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~FreeStream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }
  FreeStream(const FreeStream&) = delete;
  FreeStream& operator=(const FreeStream&) = delete;

  operator cudaStream_t() const { return stream_; }  // NOLINT: stands for the handle.

 private:
  cudaStream_t stream_ = nullptr;
};

/// An event of CUDA, which ends with its scope.
class ScopedEvent {
 public:
  ScopedEvent() {
    EXPECT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
  }
  ~ScopedEvent() { EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess); }
  ScopedEvent(const ScopedEvent&) = delete;
  ScopedEvent& operator=(const ScopedEvent&) = delete;

  void record(cudaStream_t stream) { EXPECT_EQ(cudaEventRecord(event_, stream), cudaSuccess); }
  void block(cudaStream_t stream) {
    EXPECT_EQ(cudaStreamWaitEvent(stream, event_, 0), cudaSuccess);
  }
  void wait() { EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess); }
  operator cudaEvent_t() const { return event_; }  // NOLINT: stands for the handle.

 private:
  cudaEvent_t event_ = nullptr;
};

/// Memory of the current device, or pinned memory of the host.
enum class Where : bool { kDevice, kPinned };
template <Where kWhere>
class Bytes {
 public:
  explicit Bytes(std::size_t bytes) : bytes_(bytes) {
    EXPECT_EQ(
        kWhere == Where::kDevice ? cudaMalloc(&data_, bytes) : cudaHostAlloc(&data_, bytes, 0),
        cudaSuccess);
  }
  ~Bytes() {
    EXPECT_EQ(kWhere == Where::kDevice ? cudaFree(data_) : cudaFreeHost(data_), cudaSuccess);
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  char* data() const { return static_cast<char*>(data_); }
  std::size_t size() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};
using DeviceBytes = Bytes<Where::kDevice>;
using PinnedBytes = Bytes<Where::kPinned>;

}  // namespace spillway::emulated
