#pragma once

#include <algorithm>
#include <cstdint>

#include "spillway/planner/step_events.h"

namespace spillway::planner {

/// Writes down what happens in a simulated repetition, for `observe_step`. Without an observer it
/// does nothing. Moments are those of the simulation, in seconds from its begin.
class StepObserver {
 public:
  /// Null: no observer.
  explicit StepObserver(StepEvents* events) : events_(events) {}

  bool is_looking() const { return events_ != nullptr; }
  /// The moment counted from the begin of the repetition, as events tell it.
  double in_step(double moment) const { return moment - begin_; }

  /// A repetition begins: what was seen of the one before is forgotten.
  void begin_step(double now) {
    if (!is_looking()) return;
    events_->clear();
    begin_ = now;
  }

  void note_operator(OpIndex op, double begin, double end) {
    if (is_looking()) events_->operators.push_back({op, in_step(begin), in_step(end)});
  }

  /// So many pages are taken from now on.
  void note_residency(double now, std::uint32_t pages) {
    if (!is_looking()) return;
    auto& points = events_->residency;
    if (points.empty() || points.back().pages != pages) points.push_back({in_step(now), pages});
  }

  /// What holds an operator up from now on.
  void begin_wait(OpIndex op, WaitReason reason, ValueIndex value, double now) {
    wait_ = {op, reason, value, in_step(now), 0.0};
  }

  /// Joined with the wait before if it is the same.
  void end_wait(double now) {
    wait_.end = in_step(now);
    if (wait_.end <= wait_.begin) return;
    auto& waits = events_->waits;
    const bool is_same = !waits.empty() && waits.back().op == wait_.op &&
                         waits.back().reason == wait_.reason && waits.back().value == wait_.value;
    if (is_same)
      waits.back().end = wait_.end;
    else
      waits.push_back(wait_);
  }

  void note_transfer(const TransferEvent& event, double now) {
    if (!is_looking()) return;
    events_->transfers.push_back(event);
    events_->transfers.back().end = in_step(now);
  }

  void end_step() {
    if (!is_looking()) return;
    std::stable_sort(events_->transfers.begin(), events_->transfers.end(),
                     [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }

 private:
  StepEvents* const events_;
  double begin_ = 0.0;
  WaitEvent wait_;
};

}  // namespace spillway::planner
