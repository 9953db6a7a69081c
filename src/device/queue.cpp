#include <condition_variable>
#include <mutex>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/device/device.h"

namespace spillway::device {

struct Completion::Shared {
  std::mutex mutex;
  std::condition_variable ended;
  bool is_done = false;
  Outcome outcome;
};

bool Completion::is_done() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->is_done;
}

const Outcome& Completion::wait() const {
  std::unique_lock lock(shared_->mutex);
  shared_->ended.wait(lock, [this] { return shared_->is_done; });
  return shared_->outcome;
}

Completion Queue::make_completion() const {
  Completion completion;
  completion.shared_ = std::make_shared<Completion::Shared>();
  return completion;
}

void Queue::finish(const Completion& completion, Outcome outcome) {
  {
    const std::lock_guard lock(completion.shared_->mutex);
    SPILLWAY_ASSERT(!completion.shared_->is_done);
    completion.shared_->outcome = std::move(outcome);
    completion.shared_->is_done = true;
  }
  completion.shared_->ended.notify_all();
}

Completion Queue::copy(std::byte* destination, const std::byte* source, Bytes size) {
  SPILLWAY_ASSERT(size == Bytes() || (destination != nullptr && source != nullptr));
  Completion completion = make_completion();
  do_copy(destination, source, size.count(), completion);
  return completion;
}

Completion Queue::run(std::function<Outcome()> work) {
  SPILLWAY_ASSERT(work != nullptr);
  Completion completion = make_completion();
  do_run(std::move(work), completion);
  return completion;
}

void Queue::wait_for(const Completion& earlier) {
  SPILLWAY_ASSERT(earlier.shared_ != nullptr);
  do_wait_for(earlier);
}

}  // namespace spillway::device
