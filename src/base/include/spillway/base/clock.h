#pragma once

#include <chrono>

namespace spillway {

using Duration = std::chrono::nanoseconds;

/// A moment on a monotonic clock, counted from an arbitrary start.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

/// Tells the time. Engines receive one, so that tests can move it by hand.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

/// The monotonic clock of the system. Any thread.
class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

inline double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace spillway
