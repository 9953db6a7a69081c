#pragma once

#include <mutex>

namespace spillway::split {

/// The threads of a rank take turns in what holds memory of its GPU: an operator with its inputs
/// and results, a copy with what it fills. Nobody sees what a GPU touches, so of two that each hold
/// what the other one lacks none could go on. What a thread waits for while it has the turn is the
/// GPU alone. Any thread; may be nested.
class DeviceTurn {
 public:
  /// `is_needed`: false for what uses the host alone.
  explicit DeviceTurn(bool is_needed = true) {
    if (is_needed) lock_ = std::unique_lock(mutex_);
  }

 private:
  inline static std::recursive_mutex mutex_;
  std::unique_lock<std::recursive_mutex> lock_;
};

}  // namespace spillway::split
