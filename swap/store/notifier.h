#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/base/own_descriptors.h"
#include "spillway/swap/spill_store.h"

namespace spillway::swap {

/// Tells the I/O thread that a transfer may have finished somewhere. Stores that are waited for
/// together share one, so that there is one place to sleep. While the kernel moves something, that
/// is an eventfd, which the kernel writes to, and else a condition variable. Any thread notifies,
/// and in the program's table the number of the eventfd may mean another file: there a thread of
/// the notifier passes that on.
class Notifier {
 public:
  Notifier() = default;
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  void notify();  ///< Any thread.

  /// The number of the eventfd in this table, which is the same at each call, as for all files of a
  /// store. Throws UnsupportedError, or std::system_error without a thread.
  int event_in(const std::shared_ptr<OwnDescriptors>& table);
  /// Tells how many transfers more, or fewer, the kernel will notify of. I/O thread only.
  void expect_of_kernel(std::ptrdiff_t transfers) { expected_ += transfers; }

  /// Notifies at `moment`, or at an earlier one asked for before. I/O thread only, like `wait`.
  void notify_by(TimePoint moment);
  void wait(Duration timeout);  ///< Until it is notified, or has been since the last wait.

 private:
  enum class Sleep { kAwake, kOnCondition, kOnEvent };

  void pass_on();
  void sleep_on_event(Duration timeout) const;

  std::mutex mutex_;
  std::condition_variable notified_;
  bool is_notified_ = false;
  Sleep sleep_ = Sleep::kAwake;
  std::optional<TimePoint> due_;
  std::ptrdiff_t expected_ = 0;

  std::shared_ptr<OwnDescriptors> table_;  // null: the kernel notifies nobody
  int event_ = -1;
  std::condition_variable to_pass_on_;
  bool is_stopping_ = false;
  std::unique_ptr<std::thread> passer_;
};

/// How every store waits: look for finished transfers, sleep on the notifier, look again.
class ReapWait {
 public:
  explicit ReapWait(std::shared_ptr<Notifier> notifier) : notifier_(std::move(notifier)) {}

  /// Any thread.
  void wake() {
    woken_.store(true);
    notifier_->notify();
  }

  Notifier& notifier() { return *notifier_; }

  /// Calls `collect(results)` until it has appended something, `wake` was called, or `timeout` is
  /// over; at least once. With a timeout of zero it leaves the notifier to whoever shares it.
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
      notifier_->wait(left);
    }
  }

 private:
  static constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24);

  SteadyClock
      clock_;  // the notifier sleeps in real time, whatever clock the rest of a test follows
  std::shared_ptr<Notifier> notifier_;
  std::atomic<bool> woken_{false};
};

}  // namespace spillway::swap
