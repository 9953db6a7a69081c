#include "store/notifier.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"

namespace spillway::swap {

Notifier::~Notifier() {
  if (table_ == nullptr) return;
  if (!table_->is_reachable()) {
    static_cast<void>(passer_.release());  // The thread is not in a forked child.
    return;
  }
  if (passer_ != nullptr) {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    to_pass_on_.notify_one();
    passer_->join();
  }
  table_->run([this] { ::close(event_); });
}

int Notifier::event_in(const std::shared_ptr<OwnDescriptors>& table) {
  SPILLWAY_ASSERT(table_ == nullptr || table_ == table);
  if (table_ != nullptr) return event_;
  table->run([this] {
    event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_ < 0) throw UnsupportedError("eventfd is refused: {}", std::strerror(errno));
  });
  table_ = table;
  passer_ = std::make_unique<std::thread>(table_->start_thread([this] { pass_on(); }));
  ::pthread_setname_np(passer_->native_handle(), "spill-notifier");
  return event_;
}

void Notifier::notify() {
  Sleep sleep;
  {
    const std::lock_guard lock(mutex_);
    is_notified_ = true;
    sleep = sleep_;
  }
  if (sleep == Sleep::kOnCondition)
    notified_.notify_one();
  else if (sleep == Sleep::kOnEvent && table_->is_current())
    ::eventfd_write(event_, 1);
  else if (sleep == Sleep::kOnEvent)
    to_pass_on_.notify_one();
}

/// Notifications by threads with another table. Once for each sleep.
void Notifier::pass_on() {
  std::unique_lock lock(mutex_);
  for (;;) {
    to_pass_on_.wait(
        lock, [this] { return is_stopping_ || (is_notified_ && sleep_ == Sleep::kOnEvent); });
    if (is_stopping_) return;
    sleep_ = Sleep::kAwake;
    ::eventfd_write(event_, 1);
  }
}

void Notifier::notify_by(TimePoint moment) {
  if (!due_ || moment < *due_) due_ = moment;
}

void Notifier::wait(Duration timeout) {
  if (due_) timeout = std::min(timeout, std::max(*due_ - SteadyClock().now(), Duration::zero()));
  {
    std::unique_lock lock(mutex_);
    if (expected_ == 0) {
      sleep_ = Sleep::kOnCondition;
      notified_.wait_for(lock, timeout, [this] { return is_notified_; });
    } else if (!is_notified_) {
      sleep_ = Sleep::kOnEvent;
      lock.unlock();
      table_->run([&] { sleep_on_event(timeout); });
      lock.lock();
    }
    sleep_ = Sleep::kAwake;
    is_notified_ = false;
  }
  if (due_ && SteadyClock().now() >= *due_) due_.reset();
}

void Notifier::sleep_on_event(Duration timeout) const {
  const timespec limit{.tv_sec = static_cast<time_t>(timeout.count() / 1'000'000'000),
                       .tv_nsec = static_cast<long>(timeout.count() % 1'000'000'000)};
  pollfd entry{.fd = event_, .events = POLLIN, .revents = 0};
  // A signal ends the sleep early, which the caller's loop forgives.
  if (::ppoll(&entry, 1, &limit, nullptr) <= 0) return;
  eventfd_t count = 0;
  ::eventfd_read(event_, &count);
}

}  // namespace spillway::swap
