#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "context.h"
#include "spillway/device/device.h"

namespace spillway::device {

/// The first failure of the work between two events of a queue; work fails when it is given, or
/// when its turn comes.
class CudaFailures {
 public:
  /// `place`: which piece of work of the queue it was.
  void add(std::uint64_t place, std::string error);
  std::string first() const;

 private:
  mutable std::mutex mutex_;
  std::string error_;
  std::uint64_t place_ = 0;
};

/// A stream as a queue.
class CudaQueue final : public Queue {
 public:
  /// Its own stream, which waits for no other one. Throws Error where CUDA refuses it.
  CudaQueue(std::shared_ptr<CudaContext> context, const std::string& name);
  /// Over a stream of somebody else.
  CudaQueue(std::shared_ptr<CudaContext> context, cudaStream_t stream);
  ~CudaQueue() override;

  cudaStream_t stream() const { return stream_; }
  bool is_captured() const;
  /// Of the work since the latest event.
  std::string failure_so_far();

 private:
  struct Work;

  void do_copy(DeviceSpan to, DeviceSpan from) override;
  void do_run(std::function<Outcome()> work) override;
  Event do_record(Timing timing) override;
  void do_wait(const std::shared_ptr<const EventState>& event) override;

  /// Under `mutex_`: the piece of work that has just been given came to `error`.
  void note(const char* what, cudaError_t error);
  bool has_ended_after(cudaError_t error) const;
  cudaError_t start_copy(DeviceSpan to, DeviceSpan from);
  static void run_on_driver_thread(void* work);

  const std::shared_ptr<CudaContext> context_;
  const bool owns_stream_;
  cudaStream_t stream_ = nullptr;

  std::mutex mutex_;  // Held while work is given, so that failures and events keep its order.
  std::uint64_t given_ = 0;
  std::shared_ptr<CudaFailures> failures_;  ///< Since the latest event.
};

}  // namespace spillway::device
