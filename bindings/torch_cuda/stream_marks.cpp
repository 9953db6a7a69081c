#include "stream_marks.h"

#include <utility>

#include "spillway/base/error.h"
#include "spillway/device/cuda/cuda_backend.h"

namespace spillway::torch_binding {

class StreamMarks::Mark final : public device::EventState {
 public:
  Mark(std::shared_ptr<StreamMarks> stream, std::uint64_t number)
      : EventState(stream->queue_->device(), device::Timing::kNone),
        stream_(std::move(stream)),
        number_(number) {}

  bool is_done() const override { return stream_->is_done(number_); }
  device::Outcome wait() const override { return stream_->wait(number_); }
  const void* line() const override { return stream_.get(); }
  std::string obstacle() const override { return stream_->obstacle(number_); }
  Duration time_since(const EventState& /*earlier*/) const override {
    throw Error("marks of {} have no time", device());
  }

 private:
  const std::shared_ptr<StreamMarks> stream_;
  const std::uint64_t number_;
};

StreamMarks::StreamMarks(std::unique_ptr<device::Queue> queue, std::function<bool()> is_capturing)
    : queue_(std::move(queue)), is_capturing_(std::move(is_capturing)) {}

device::Event StreamMarks::mark() {
  return device::Event(std::make_shared<const Mark>(shared_from_this(), given_.fetch_add(1) + 1));
}

device::Event StreamMarks::moment() { return recorded(device::Timing::kKept); }

device::Event StreamMarks::end_so_far() { return recorded(device::Timing::kNone); }

/// An event at the end of the stream; the default one while that is captured. Another thread may
/// begin a capture just when it is recorded: then it is a part of the graph, and asked for, it
/// would break that.
device::Event StreamMarks::recorded(device::Timing timing) {
  if (is_capturing_()) return {};
  device::Event event = queue_->record(timing);
  return is_capturing_() ? device::Event() : event;
}

void StreamMarks::let_wait(const device::Event& end) {
  if (is_capturing_()) return;
  queue_->wait(end);
  if (const std::string failure = device::failure_so_far(*queue_); !failure.empty())
    throw Error("a stream does not wait for another one: {}", failure);
}

bool StreamMarks::is_done(std::uint64_t number) {
  if (number <= done_.load(std::memory_order_acquire)) return true;
  const std::lock_guard lock(mutex_);
  forget_done_locked();
  if (number <= done_.load()) return true;
  const bool is_idle = recorded_.empty();
  // What was recorded before goes on, and so does what comes behind it.
  if (covering_locked(number) == nullptr || !is_idle) return false;
  forget_done_locked();
  return number <= done_.load();
}

device::Outcome StreamMarks::wait(std::uint64_t number) {
  if (number <= done_.load(std::memory_order_acquire)) return {};
  device::Event event;
  {
    const std::lock_guard lock(mutex_);
    const Recorded* const found = covering_locked(number);
    if (found == nullptr) return {text_of_capture()};
    event = found->event;
  }
  return event.wait();
}

std::string StreamMarks::obstacle(std::uint64_t number) {
  if (number <= done_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  const Recorded* const found = covering_locked(number);
  return found == nullptr ? text_of_capture() : found->event.state()->obstacle();
}

std::string StreamMarks::text_of_capture() const {
  return message("a stream of {} is being captured into a graph, and tells nothing until that has "
                 "ended",
                 queue_->device());
}

/// An event behind the mark; null while the stream is captured, or refuses events, and has none.
const StreamMarks::Recorded* StreamMarks::covering_locked(std::uint64_t number) {
  for (const Recorded& recorded : recorded_)
    if (number <= recorded.until) return &recorded;
  // In this order: what the marks stand behind was given before they were made.
  const std::uint64_t until = given_.load();
  device::Event event = recorded(device::Timing::kNone);
  if (event.state() == nullptr || !event.state()->obstacle().empty()) return nullptr;
  recorded_.push_back({until, std::move(event)});
  return &recorded_.back();
}

void StreamMarks::forget_done_locked() {
  for (; !recorded_.empty(); recorded_.pop_front()) {
    const Recorded& first = recorded_.front();
    if (first.event.is_done())
      done_.store(first.until, std::memory_order_release);
    else if (first.event.state()->obstacle().empty())
      return;  // Else its marks get another event once somebody asks.
  }
}

}  // namespace spillway::torch_binding
