#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "spillway/device/event.h"

namespace spillway::transport {

/// One side of a message, for backends. Outlives the transport where somebody keeps it. Any thread.
class MessageEvent : public device::EventState {
 public:
  MessageEvent() : EventState(device::DeviceId()) {}

  /// Once. `error` as in Outcome.
  void finish(std::string error) {
    {
      const std::lock_guard lock(mutex_);
      outcome_.error = std::move(error);
      at_ = SteadyClock().now();
      is_done_.store(true, std::memory_order_release);
    }
    ended_.notify_all();
  }

  bool is_done() const override { return is_done_.load(std::memory_order_acquire); }

  device::Outcome wait() const override {
    if (!is_done()) {
      std::unique_lock lock(mutex_);
      ended_.wait(lock, [this] { return is_done(); });
    }
    return outcome_;
  }

  Duration time_since(const EventState& earlier) const override {
    return at_ - static_cast<const MessageEvent&>(earlier).at_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  std::atomic<bool> is_done_{false};
  device::Outcome outcome_;  ///< Read once `is_done`, as the next one.
  TimePoint at_;
};

}  // namespace spillway::transport
