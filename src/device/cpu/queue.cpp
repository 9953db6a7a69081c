#include "cpu/queue.h"

#include <pthread.h>

#include <cstring>
#include <exception>
#include <utility>

#include "spillway/base/signals_blocked.h"

namespace spillway::device {
namespace {

/// A moment of a CpuQueue.
class CpuEvent final : public EventState {
 public:
  using EventState::EventState;

  bool is_done() const override {
    const std::lock_guard lock(mutex_);
    return is_done_;
  }

  Outcome wait() const override {
    std::unique_lock lock(mutex_);
    reached_.wait(lock, [this] { return is_done_; });
    return outcome_;
  }

  Duration time_since(const EventState& earlier) const override {
    return at_ - dynamic_cast<const CpuEvent&>(earlier).at_;
  }

  void reach(Outcome outcome, TimePoint now) {
    {
      const std::lock_guard lock(mutex_);
      outcome_ = std::move(outcome);
      at_ = now;
      is_done_ = true;
    }
    reached_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable reached_;
  bool is_done_ = false;
  Outcome outcome_;
  TimePoint at_{};  // Stands once it is done.
};

}  // namespace

CpuQueue::CpuQueue(DeviceId device, const std::string& name, std::shared_ptr<const Clock> clock)
    : Queue(device), clock_(std::move(clock)) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { work_off(); });
  // The kernel keeps 15 letters.
  ::pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

CpuQueue::~CpuQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CpuQueue::do_copy(DeviceSpan to, DeviceSpan from) {
  push([to, from] { copy_now(to, from); });
}

void CpuQueue::copy_now(DeviceSpan to, DeviceSpan from) {
  if (to.size > Bytes()) std::memcpy(to.data, from.data, to.size.count());
}

void CpuQueue::do_run(std::function<Outcome()> work) {
  push([this, work = std::move(work)] {
    std::string error;
    try {
      error = work().error;
    } catch (const std::exception& thrown) {
      error = thrown.what();
    } catch (...) {
      error = "work of a queue has thrown what is no std::exception";
    }
    if (failure_.empty()) failure_ = std::move(error);
  });
}

Event CpuQueue::do_record(Timing timing) {
  auto state = std::make_shared<CpuEvent>(device(), timing);
  push([this, state] { state->reach({std::exchange(failure_, {})}, clock_->now()); });
  return Event(std::move(state));
}

void CpuQueue::do_wait(const std::shared_ptr<const EventState>& event) {
  push([event] { event->wait(); });
}

void CpuQueue::push(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void CpuQueue::work_off() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_ending_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace spillway::device
