// What a StepTraceRecorder has kept, as spans and counts of a trace.

#include <algorithm>
#include <array>
#include <system_error>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/profile/value_classes.h"
#include "spillway/runtime/recording/step_trace_recorder.h"
#include "traced_values.h"

namespace spillway::runtime {

using profile::OpKind;
using profile::TraceSpan;

namespace {

// Beside the predicted trace, which is process 1, when both are joined in one file.
constexpr std::uint32_t kMeasuredProcess = 2;

// As the recorder's lanes.
constexpr std::array kMoveLanes{profile::kWriteOutLane, profile::kReadInLane,
                                profile::kFarWriteOutLane, profile::kFarReadInLane};

std::string text_of(const OpKind& kind) {
  return kind.arguments.empty() ? kind.name : message("{} ({})", kind.name, kind.arguments);
}

std::string text_of(const OpKind* kind) { return kind == nullptr ? "an operator" : kind->name; }

}  // namespace

/// With the mutex of the recorder held.
class StepTraceRecorder::Writer {
 public:
  Writer(const StepTraceRecorder& from, std::span<const Step* const> steps, TimePoint begin,
         TimePoint end)
      : steps_(steps), begin_(begin), end_(end) {
    name_values(from);
    for (const Step* step : steps_)
      made_.trace.marks.push_back({moment(step->begin), message("step {}", step->number)});
    if (!steps_.empty()) made_.trace.marks.push_back({moment(end_), "end"});
    made_.trace.has_far_tier = from.options_.has_far_tier;
    is_of_device_ = from.options_.moment != nullptr;
    for (const Span& span : from.spans_) {
      if (!is_shown(span.begin, span.end)) continue;
      add(span);
      // The device cannot come to an operator before the host gives it that; where it has nothing
      // else to do it comes to it at once. Where waits begin is not known as well.
      if (span.on_device && !is_wait(span))
        ahead_ = std::max(ahead_, span.begin.time_since_epoch() - span.on_device->begin);
    }
    if (ahead_ != Duration::min()) add_device_spans(from);
    for (std::size_t lane = 0; lane < kMoveLanes.size(); ++lane)
      for (const Move& move : from.lanes_.at(lane).moves)
        if (is_shown(move.begin, move.end)) add(move, kMoveLanes.at(lane), moved_.at(lane));
    for (std::size_t i = 0; i < from.counts_.size(); ++i) {
      const bool holds_later = i + 1 == from.counts_.size() || from.counts_[i + 1].end > begin_;
      if (from.counts_[i].end < end_ && holds_later)
        made_.trace.resident_bytes.push_back(
            {std::max(0.0, moment(from.counts_[i].end)),
             static_cast<double>(from.counts_[i].resident.count())});
    }
    std::stable_sort(
        made_.trace.spans.begin(), made_.trace.spans.end(),
        [](const auto& a, const auto& b) { return a.begin_seconds < b.begin_seconds; });
  }

  RecordedTrace finish(const std::string& program, std::uint64_t other_ops) {
    made_.trace.process = kMeasuredProcess;
    made_.begin = begin_;
    made_.end = end_;
    made_.has_whole_step = !steps_.empty();
    made_.trace.source = profile::TraceSource::kRun;
    made_.trace.title = message("measured: {} ({})", program, steps_text());
    made_.summary =
        message("{}, {}, {} of them recomputed, {} out, {} in", steps_text(),
                counted(firsts_ + replays_, "operator"), replays_, moved_[0], moved_[1]);
    if (made_.trace.has_far_tier)
      made_.summary += message(", {} to disks, {} from disks", moved_[2], moved_[3]);
    if (untimed_ > 0)
      made_.summary += message("; the device has not told when it ran {} of them", untimed_);
    if (other_ops > 0)
      made_.summary += message("; {} of other threads {} not shown", counted(other_ops, "operator"),
                               other_ops == 1 ? "is" : "are");
    return std::move(made_);
  }

 private:
  /// A whole step is without what it takes no time of.
  bool is_shown(TimePoint begin, TimePoint end) const { return end > begin_ && begin < end_; }
  double moment(TimePoint at) const { return seconds(at - begin_); }

  std::string steps_text() const {
    if (steps_.empty()) return "no whole step";
    if (steps_.size() == 1) return message("step {}", steps_.front()->number);
    return message("steps {} to {}", steps_.front()->number, steps_.back()->number);
  }

  TraceSpan span_of(std::string_view lane, std::string name, TimePoint begin, TimePoint end) const {
    begin = std::max(begin, begin_);
    return {lane, std::move(name), moment(begin), seconds(end - begin), {}};
  }

  /// One more than the index of the step in which that is; 0 outside of all.
  std::size_t step_at(TimePoint at) const {
    const auto next = std::find_if(steps_.begin(), steps_.end(),
                                   [&](const Step* step) { return step->begin > at; });
    return static_cast<std::size_t>(next - steps_.begin());
  }

  void add_step(TraceSpan& span, TimePoint at) const {
    if (const std::size_t step = step_at(at); step > 0)
      span.facts.emplace_back("step", std::to_string(steps_[step - 1]->number));
  }

  void name_values(const StepTraceRecorder& from) {
    std::vector<std::uint64_t> storages;
    for (const Storage& storage : from.storages_) storages.push_back(storage.number);
    std::vector<StorageBirth> births;  // From the step on.
    values_.resize(steps_.size());
    auto step = from.steps_.rbegin();
    for (std::size_t i = steps_.size(); i-- > 0;) {
      for (; &*step != steps_[i]; ++step)
        births.insert(births.begin(), step->births.begin(), step->births.end());
      births.insert(births.begin(), step->births.begin(), step->births.end());
      const std::size_t own = step->births.size();
      ++step;
      if (steps_[i]->values == nullptr) continue;
      const profile::RecordedStep* before = i > 0 ? steps_[i - 1]->values.get() : nullptr;
      values_[i] = traced_values(*steps_[i]->values, before, births, own, storages);
    }
  }

  /// What the storage is at that moment, where that is known.
  const TracedValue* value_of(const Storage& storage, TimePoint at) const {
    const std::size_t step = step_at(at);
    if (step == 0) return nullptr;
    const auto found = values_[step - 1].find(storage.number);
    return found == values_[step - 1].end() ? nullptr : &found->second;
  }

  static bool is_wait(const Span& span) {
    return span.what == What::kWaitForInputs || span.what == What::kWaitForRoom;
  }

  /// By the clock of the host.
  void add(const Span& span) {
    TraceSpan shown = span_of(is_of_device_ ? profile::kLaunchLane : profile::kComputeLane,
                              name_of(span), span.begin, span.end);
    add_facts(span, shown);
    if (!is_wait(span) && !span.goes_on) ++(span.what == What::kReplay ? replays_ : firsts_);
    if (is_of_device_ && !is_wait(span) && !span.on_device) ++untimed_;
    made_.trace.spans.push_back(std::move(shown));
  }

  void add_facts(const Span& span, TraceSpan& shown) const {
    if (is_wait(span)) {
      if (span.kind != nullptr)
        shown.facts.emplace_back(span.what == What::kWaitForRoom ? "in" : "before",
                                 text_of(*span.kind));
    } else {
      if (span.number != kNoNumber)
        shown.facts.emplace_back(profile::kOperatorFact, std::to_string(span.number));
      if (span.kind != nullptr) shown.facts.emplace_back("arguments", span.kind->arguments);
      if (span.goes_on) shown.facts.emplace_back("part", "goes on after a wait");
    }
    add_step(shown, span.begin);
  }

  /// By the clock of the device, each stream in its lane, from the moment on that its operators
  /// were launched in. Waits of the host are shown where the device ran dry meanwhile.
  void add_device_spans(const StepTraceRecorder& from) {
    std::vector<const Span*> spans;
    for (const Span& span : from.spans_) {
      if (!is_shown(span.begin, span.end)) continue;
      if (span.on_device) spans.push_back(&span);
    }
    std::stable_sort(spans.begin(), spans.end(), [](const Span* a, const Span* b) {
      return a->on_device->begin < b->on_device->begin;
    });
    std::array<Duration, 1 + profile::kFurtherStreamLanes.size()> ended;
    ended.fill(Duration::min());
    for (const Span* span : spans) {
      const std::size_t stream = std::min<std::size_t>(span->stream, ended.size() - 1);
      const Duration begin = std::max(span->on_device->begin, ended.at(stream));
      const Duration time = std::max(Duration(0), span->on_device->end - begin);
      if (is_wait(*span) && time < StallLedger::kNoticeable) continue;
      const TimePoint at = TimePoint(ahead_) + begin;
      TraceSpan shown =
          span_of(stream == 0 ? profile::kComputeLane : profile::kFurtherStreamLanes.at(stream - 1),
                  name_of(*span), at, at + time);
      add_facts(*span, shown);
      made_.trace.spans.push_back(std::move(shown));
      ended.at(stream) = begin + time;
    }
  }

  static std::string name_of(const Span& span) {
    switch (span.what) {
      case What::kOp: return text_of(span.kind);
      case What::kReplay: return std::string(profile::kReplayPrefix) + text_of(span.kind);
      case What::kWaitForInputs: return std::string(profile::kWaitSpan);
      case What::kWaitForRoom: return std::string(profile::kRoomWaitSpan);
    }
    return {};
  }

  void add(const Move& move, std::string_view lane, Bytes& sum) {
    const Storage& storage = move.storage;
    const TracedValue* const value = value_of(storage, std::max(move.begin, begin_));
    const bool is_known = storage.number != 0;
    std::string name = is_known ? message("storage {}", storage.number) : std::string("a storage");
    const std::string_view made_by =
        storage.made_by == nullptr ? std::string_view() : storage.made_by->name;
    std::string tensor = message("{} of {}", name, storage.size);
    if (!made_by.empty()) tensor += message(" from {}", made_by);
    if (value != nullptr) {
      name = profile::value_name(value->holds, value->index);
      tensor = profile::value_text(value->holds, value->index, storage.size,
                                   value->is_carried_in ? "" : made_by);
    }
    TraceSpan shown = span_of(lane, name, move.begin, move.end);
    shown.facts = {{std::string(profile::kBytesFact), std::to_string(move.bytes.count())}};
    if (is_known) shown.facts.emplace_back("tensor", std::move(tensor));
    if (move.is_awaited) shown.facts.emplace_back("awaited", "an operator stands and waits");
    if (move.error != 0)
      shown.facts.emplace_back("failed", std::generic_category().message(move.error));
    if (move.begin < begin_) shown.facts.emplace_back("begin", "before the first step shown");
    if (move.end > end_) shown.facts.emplace_back("end", "after the last step shown");
    sum += move.bytes;
    add_step(shown, std::max(move.begin, begin_));
    made_.trace.spans.push_back(std::move(shown));
  }

  std::span<const Step* const> steps_;
  std::vector<TracedValues> values_;  ///< Per step.
  TimePoint begin_;
  TimePoint end_;
  RecordedTrace made_;
  bool is_of_device_ = false;
  Duration ahead_ = Duration::min();  ///< Of the host's clock, to the device's.
  std::uint64_t firsts_ = 0;          ///< Operators that run for the first time.
  std::uint64_t replays_ = 0;
  std::uint64_t untimed_ = 0;
  std::array<Bytes, kMoveLanes.size()> moved_;
};

/// The steps to show, and the one behind them. Values of the step that has ended last are told at
/// the begin of the first operator behind it, which a program's end leaves out: then those before
/// it are shown, if there are enough.
std::vector<const StepTraceRecorder::Step*> StepTraceRecorder::shown_locked() const {
  std::vector<const Step*> steps;
  for (const Step& step : steps_)
    if (step.begin >= forgotten_until_) steps.push_back(&step);
  const std::size_t most = std::size_t{options_.steps} + 1;
  if (steps.size() > most && steps[steps.size() - 2]->values == nullptr &&
      steps[steps.size() - 3]->values != nullptr)
    steps.pop_back();
  if (steps.size() > most)
    steps.erase(steps.begin(), steps.end() - static_cast<std::ptrdiff_t>(most));
  return steps;
}

void StepTraceRecorder::settle() {
  const std::lock_guard lock(mutex_);
  settle_moments_locked();
}

RecordedTrace StepTraceRecorder::trace(const std::string& program) {
  const std::lock_guard lock(mutex_);
  settle_moments_locked();
  const std::vector<const Step*> steps = shown_locked();
  if (steps.size() >= 2) {
    const std::span<const Step* const> whole(steps.data(), steps.size() - 1);
    return Writer(*this, whole, steps.front()->begin, steps.back()->begin)
        .finish(program, other_ops_);
  }
  TimePoint begin = TimePoint::max();
  if (!spans_.empty()) begin = spans_.front().begin;
  for (const Lane& lane : lanes_)
    if (!lane.moves.empty()) begin = std::min(begin, lane.moves.front().begin);
  if (begin == TimePoint::max()) begin = clock_.now();
  return Writer(*this, {}, begin, TimePoint::max()).finish(program, other_ops_);
}

}  // namespace spillway::runtime
