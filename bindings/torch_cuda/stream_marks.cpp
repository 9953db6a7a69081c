#include "stream_marks.h"

#include <algorithm>
#include <utility>

#include "spillway/base/error.h"

namespace spillway::torch_binding {
namespace {

class AllMoments final : public device::EventState {
 public:
  explicit AllMoments(std::vector<device::Event> moments)
      : EventState(moments.front().state()->device(), device::Timing::kNone),
        moments_(std::move(moments)) {}

  bool is_done() const override {
    return std::all_of(moments_.begin(), moments_.end(),
                       [](const device::Event& moment) { return moment.is_done(); });
  }
  std::string obstacle() const override {
    for (const device::Event& moment : moments_)
      if (std::string text = moment.state()->obstacle(); !text.empty()) return text;
    return {};
  }
  device::Outcome wait() const override {
    device::Outcome first;
    for (const device::Event& moment : moments_) {
      const device::Outcome outcome = moment.wait();
      if (first.succeeded()) first = outcome;
    }
    return first;
  }
  Duration time_since(const EventState& /*earlier*/) const override {
    throw Error("several moments of {} have no time", device());
  }

 private:
  const std::vector<device::Event> moments_;
};

}  // namespace

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

device::Event StreamMarks::moment() {
  return is_capturing_() ? device::Event() : queue_->record(device::Timing::kKept);
}

device::Event StreamMarks::end_so_far() {
  return is_capturing_() ? device::Event() : queue_->record();
}

void StreamMarks::let_wait(const device::Event& end) {
  if (!is_capturing_()) queue_->wait(end);
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
  return covering_locked(number) == nullptr ? text_of_capture() : std::string();
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
  if (is_capturing_()) return nullptr;
  // In this order: what the marks stand behind was given before they were made.
  const std::uint64_t until = given_.load();
  device::Event event = queue_->record();
  if (!event.state()->obstacle().empty()) return nullptr;  // Its capture has begun meanwhile.
  recorded_.push_back({until, std::move(event)});
  return &recorded_.back();
}

device::Event all_of(std::vector<device::Event> moments) {
  std::erase_if(moments, [](const device::Event& moment) { return moment.state() == nullptr; });
  if (moments.empty()) return {};
  if (moments.size() == 1) return moments.front();
  return device::Event(std::make_shared<const AllMoments>(std::move(moments)));
}

void StreamMarks::forget_done_locked() {
  while (!recorded_.empty() && recorded_.front().event.is_done()) {
    done_.store(recorded_.front().until, std::memory_order_release);
    recorded_.pop_front();
  }
}

}  // namespace spillway::torch_binding
