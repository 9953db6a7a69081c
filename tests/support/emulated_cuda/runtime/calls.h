#pragma once

#include <atomic>

namespace spillway::emulated {

/// How often a function of CUDA was called; one for each function, for ever. Where the calls are
/// printed at the end, also by whom.
class CallCounter {
 public:
  explicit CallCounter(const char* name);
  void count();

  const char* name() const { return name_; }
  unsigned long long calls() const { return calls_.load(std::memory_order_relaxed); }
  CallCounter* next() const { return next_; }
  static CallCounter* first();

 private:
  const char* name_;
  std::atomic<unsigned long long> calls_{0};
  CallCounter* next_ = nullptr;
};

/// Dies where the calling thread has not the descriptors of the thread that called CUDA first: the
/// driver's files are open there alone.
void need_driver_files(const char* call);

/// While it lives the calling thread runs a function of the host in a stream, which may not call
/// CUDA: on a GPU that is refused, or waits for ever.
class InHostFunction {
 public:
  InHostFunction();
  ~InHostFunction();
  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;
};

/// Dies where the calling thread runs such a function.
void need_no_host_function(const char* call);

}  // namespace spillway::emulated

/// First line of each function of CUDA.
#define SPILLWAY_COUNT_CALL()                                                      \
  do {                                                                             \
    static auto* counter_of_calls = new spillway::emulated::CallCounter(__func__); \
    counter_of_calls->count();                                                     \
    spillway::emulated::need_driver_files(__func__);                               \
    spillway::emulated::need_no_host_function(__func__);                           \
  } while (false)
