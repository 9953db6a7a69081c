#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "spillway/base/clock.h"

namespace spillway::runtime {

/// Whether an alarm rings again after as long as before.
enum class Ring : std::uint8_t { kOnce, kAgain };

/// Calls a function on a thread of its own after so long, and again as long as that says so, until
/// this is destroyed. The function must not wait for whoever may destroy this. Where no thread can
/// be started, that is warned of, and nothing is called.
class Alarm {
 public:
  Alarm(Duration after, std::function<Ring()> ring);
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace spillway::runtime
