#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/swap/spill_store.h"
#include "store/file_descriptor.h"

namespace spillway::swap {

/// Tells the I/O thread that a transfer may have finished somewhere. Stores that are waited for
/// together share one, so that there is one place to sleep. An eventfd: io_uring rings it itself.
class Doorbell {
 public:
  Doorbell();  ///< Throws IoError when the process has no file descriptor left.

  void ring();  ///< Any thread.
  int fd() const { return event_.get(); }

  /// Rings at `moment`, or at an earlier one asked for before. I/O thread only, like `wait`.
  void ring_by(TimePoint moment);
  void wait(Duration timeout);  ///< Until it rings, or has rung since the last wait.

 private:
  FileDescriptor event_;
  std::optional<TimePoint> due_;
};

/// How every store waits: look for finished transfers, sleep on the bell, look again.
class ReapWait {
 public:
  explicit ReapWait(std::shared_ptr<Doorbell> bell) : bell_(std::move(bell)) {}

  /// Any thread.
  void wake() {
    woken_.store(true);
    bell_->ring();
  }

  Doorbell& bell() { return *bell_; }

  /// Calls `collect(results)` until it has appended something, `wake` was called, or `timeout` is
  /// over; at least once. With a timeout of zero it leaves the bell to whoever shares it.
  template <typename Collect>
  void until_finished(std::vector<TransferResult>& results, std::chrono::milliseconds timeout,
                      Collect&& collect) {
    const std::size_t before = results.size();
    const TimePoint deadline = clock_.now() + std::min(timeout, kLongestWait);
    for (;;) {
      collect(results);
      const bool was_woken = woken_.exchange(false);
      if (results.size() > before || was_woken) return;
      const Duration left = deadline - clock_.now();
      if (left <= Duration::zero()) return;
      bell_->wait(left);
    }
  }

 private:
  static constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24);

  SteadyClock clock_;  // the bell sleeps in real time, whatever clock the rest of a test follows
  std::shared_ptr<Doorbell> bell_;
  std::atomic<bool> woken_{false};
};

}  // namespace spillway::swap
