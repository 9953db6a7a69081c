#pragma once

#include <atomic>

#include "spillway/base/clock.h"

namespace spillway {

/// A clock that stands still until it is moved. Any thread.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(since_start_.load())); }
  void advance(Duration time) { since_start_ += time.count(); }

 private:
  std::atomic<Duration::rep> since_start_{0};
};

}  // namespace spillway
