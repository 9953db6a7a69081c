#pragma once

#include <algorithm>
#include <memory>

#include "spillway/device/event.h"
#include "support/manual_clock.h"

namespace spillway {

/// A stream of a device that works behind the host's back: its kernels take the time that a test
/// says, and run by the host's clock.
class TimedStream {
 public:
  /// `clock` outlives the stream and its moments.
  explicit TimedStream(ManualClock& clock) : clock_(clock) {}

  void launch(Duration kernel) { free_at_ = now_or_later() + kernel; }
  /// The host stands still until all is done.
  void synchronize() { clock_.advance(now_or_later() - clock_.now()); }
  device::Event record() const {
    return device::Event(std::make_shared<Moment>(clock_, now_or_later()));
  }

 private:
  class Moment final : public device::EventState {
   public:
    Moment(const Clock& clock, TimePoint at)
        : EventState({device::DeviceKind::kCuda, 0}), clock_(clock), at_(at) {}
    bool is_done() const override { return clock_.now() >= at_; }
    device::Outcome wait() const override { return {"nobody may wait for a moment"}; }
    Duration time_since(const EventState& earlier) const override {
      return at_ - dynamic_cast<const Moment&>(earlier).at_;
    }

   private:
    const Clock& clock_;
    const TimePoint at_;
  };

  /// When what is given to the stream now begins.
  TimePoint now_or_later() const { return std::max(free_at_, clock_.now()); }

  ManualClock& clock_;
  TimePoint free_at_{};
};

}  // namespace spillway
