#include "alarm.h"

#include <system_error>
#include <utility>

#include "spillway/base/log.h"
#include "spillway/base/signals_blocked.h"
#include "spillway/memory/kernel_refusal.h"

namespace spillway::runtime {

Alarm::Alarm(Duration after, std::function<Ring()> ring) {
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this, after, ring = std::move(ring)] {
      do {
        std::unique_lock lock(mutex_);
        if (ended_.wait_for(lock, after, [this] { return is_over_; })) return;
      } while (ring() == Ring::kAgain);
    });
  } catch (const std::system_error&) {
    log_warning("nothing will tell when this takes longer than {} s: {}", seconds(after),
                memory::why_no_thread());
  }
}

Alarm::~Alarm() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace spillway::runtime
