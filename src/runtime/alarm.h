#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "spillway/base/clock.h"

namespace spillway::runtime {

/// Calls a function on a thread of its own after so long, unless it is destroyed before. The
/// function must not wait for whoever may destroy this.
class Alarm {
 public:
  Alarm(Duration after, std::function<void()> ring);
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
