#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "spillway/transport/message_event.h"

namespace spillway::transport::nccl {

/// One side of a message, or of an operation of a group.
class Message final : public MessageEvent {
 public:
  /// It has its place among the work of the device, and ends at that moment of it.
  void begin(device::Event moment) {
    const std::lock_guard lock(mutex_);
    moment_ = std::move(moment);
  }

  /// Once. `error` as in Outcome.
  void finish(std::string error) {
    MessageEvent::finish(std::move(error));
    const std::lock_guard lock(mutex_);
    if (moment_) moment_ = device::Event();  // The event of CUDA is of use to others.
  }

  std::optional<device::Event> moment() const {
    const std::lock_guard lock(mutex_);
    return moment_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<device::Event> moment_;
};

}  // namespace spillway::transport::nccl
