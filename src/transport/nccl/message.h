#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "spillway/device/event.h"

namespace spillway::transport::nccl {

/// One side of a message, or of an operation of a group. Outlives the transport where somebody
/// keeps it.
class Message final : public device::EventState {
 public:
  Message() : EventState(device::DeviceId()) {}

  /// It has its place among the work of the device, and ends at that moment of it.
  void begin(device::Event moment) {
    const std::lock_guard lock(mutex_);
    moment_ = std::move(moment);
  }

  /// Once. `error` as in Outcome.
  void finish(std::string error) {
    {
      const std::lock_guard lock(mutex_);
      outcome_.error = std::move(error);
      at_ = SteadyClock().now();
      moment_ = device::Event();  // The event of CUDA is of use to others.
      is_done_.store(true, std::memory_order_release);
    }
    ended_.notify_all();
  }

  std::optional<device::Event> moment() const {
    const std::lock_guard lock(mutex_);
    return moment_;
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
    return at_ - static_cast<const Message&>(earlier).at_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  std::atomic<bool> is_done_{false};
  std::optional<device::Event> moment_;
  device::Outcome outcome_;  ///< Read once `is_done`, as the next one.
  TimePoint at_;
};

}  // namespace spillway::transport::nccl
