#pragma once

#include "spillway/base/clock.h"

namespace spillway {

/// A clock that stands still until it is moved. Not thread-safe.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration time) { now_ += time; }

 private:
  TimePoint now_{};
};

}  // namespace spillway
