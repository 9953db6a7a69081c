#pragma once

#include <driver_types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace spillway::emulated {

class Capture;

/// What an event leaves in a stream: passed when all before it is done.
class Mark {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void pass();
  void wait();
  bool passed();
  Time when();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool passed_ = false;
  Time when_;
};
using MarkPtr = std::shared_ptr<Mark>;

}  // namespace spillway::emulated

/// A stream: a queue and a thread that works it off, made at the first piece of work. Thread-safe.
/// CUDA declares the type.
struct CUstream_st : std::enable_shared_from_this<CUstream_st> {
 public:
  CUstream_st(int device, unsigned flags, int priority, std::string name);
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;

  /// Ends the thread behind the last piece of work. Nothing may be pushed any more.
  void retire();

  /// `what` names the work and must stay valid. Work of CUDA's own (marks, waits) is never delayed.
  enum class Delay : std::uint8_t { kNever, kBySettings };
  void push(const char* what, Delay delay, std::function<void()> run);

  /// Where what it is given goes instead of running; null: nowhere.
  std::shared_ptr<spillway::emulated::Capture> capture() const;
  void capture_into(std::shared_ptr<spillway::emulated::Capture> capture);

  /// A mark behind all that is in the stream; passed already where it is idle.
  spillway::emulated::MarkPtr mark();
  /// What is pushed from now on waits for the mark.
  void wait(const spillway::emulated::MarkPtr& mark);

  /// Waits until all that was pushed before is done.
  void drain();
  bool busy();

  int device() const { return device_; }
  unsigned flags() const { return flags_; }
  int priority() const { return priority_; }
  bool blocking() const { return (flags_ & cudaStreamNonBlocking) == 0; }
  int id() const { return id_; }  ///< For the check; unique in the process.

 private:
  struct Task {
    const char* what;
    Delay delay;
    std::function<void()> run;
  };
  void work();
  void delay(std::unique_lock<std::mutex>& lock);

  const int device_;
  const unsigned flags_;
  const int priority_;
  const int id_;
  mutable std::mutex mutex_;
  std::shared_ptr<spillway::emulated::Capture> capture_;
  std::condition_variable pushed_;
  std::condition_variable finished_;
  std::condition_variable never_;  // What a delay waits for.
  std::deque<Task> queue_;
  std::uint64_t pushed_count_ = 0;
  std::uint64_t finished_count_ = 0;
  bool started_ = false;
  bool retired_ = false;
  std::mt19937_64 random_;
};

namespace spillway::emulated {

/// The stream that a handle means for the calling thread: null and cudaStreamLegacy are the legacy
/// stream of the current device, cudaStreamPerThread is the thread's. Null where the handle is of
/// no stream that lives.
CUstream_st* stream_of(cudaStream_t handle);

/// What functions return where there is none.
cudaError_t no_such_stream(cudaStream_t handle);

/// The same as `stream_of` for functions that cannot refuse; dies.
CUstream_st& living_stream(cudaStream_t handle);

/// Adds to, and takes from, the streams that live.
CUstream_st* make_stream(int device, unsigned flags, int priority);
bool destroy_stream(cudaStream_t handle);

/// The legacy stream and blocking streams wait for each other. Called before work is submitted.
void order_with_legacy(CUstream_st& stream);

/// Waits for all work of the device; the host knows it then.
void wait_for_device(int device);

/// The same on behalf of the emulation: the host learns nothing.
void drain_device(int device);

/// What this thread, a stream's, is doing; null on threads of the host.
const char*& running();
/// Whether this is the thread of a stream.
bool& in_worker();

}  // namespace spillway::emulated
