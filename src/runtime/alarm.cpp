#include "alarm.h"

#include <utility>

#include "spillway/base/signals_blocked.h"

namespace spillway::runtime {

Alarm::Alarm(Duration after, std::function<Ring()> ring) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this, after, ring = std::move(ring)] {
    do {
      std::unique_lock lock(mutex_);
      if (ended_.wait_for(lock, after, [this] { return is_over_; })) return;
    } while (ring() == Ring::kAgain);
  });
}

Alarm::~Alarm() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

}  // namespace spillway::runtime
