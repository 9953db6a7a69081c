// What a StepTraceRecorder has kept, as spans and counts of a trace.

#include <algorithm>
#include <system_error>

#include "spillway/base/error.h"
#include "spillway/profile/value_classes.h"
#include "spillway/runtime/recording/step_trace_recorder.h"
#include "traced_values.h"

namespace spillway::runtime {

using profile::OpKind;
using profile::TraceSpan;

namespace {

// Beside the predicted trace, which is process 1, when both are joined in one file.
constexpr std::uint32_t kMeasuredProcess = 2;

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
    for (const Span& span : from.spans_)
      if (is_shown(span.begin, span.end)) add(span);
    for (const Move& move : from.lanes_[0].moves)
      if (is_shown(move.begin, move.end)) add(move, profile::kWriteOutLane, written_);
    for (const Move& move : from.lanes_[1].moves)
      if (is_shown(move.begin, move.end)) add(move, profile::kReadInLane, read_);
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
    made_.summary = message("{}, {} operators, {} of them recomputed, {} out, {} in", steps_text(),
                            ops_, replays_, written_, read_);
    if (other_ops > 0)
      made_.summary += message("; {} operators of other threads are not shown", other_ops);
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

  void add(const Span& span) {
    const bool is_wait = span.what == What::kWaitForInputs || span.what == What::kWaitForRoom;
    TraceSpan shown = span_of(profile::kComputeLane, name_of(span), span.begin, span.end);
    if (is_wait) {
      if (span.kind != nullptr)
        shown.facts.emplace_back(span.what == What::kWaitForRoom ? "in" : "before",
                                 text_of(*span.kind));
    } else {
      if (span.number != kNoNumber)
        shown.facts.emplace_back(profile::kOperatorFact, std::to_string(span.number));
      if (span.kind != nullptr) shown.facts.emplace_back("arguments", span.kind->arguments);
      if (span.goes_on) shown.facts.emplace_back("part", "goes on after a wait");
      ops_ += span.goes_on ? 0 : 1;
      replays_ += span.goes_on || span.what != What::kReplay ? 0 : 1;
    }
    add_step(shown, span.begin);
    made_.trace.spans.push_back(std::move(shown));
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
  std::uint64_t ops_ = 0;
  std::uint64_t replays_ = 0;
  Bytes written_;
  Bytes read_;
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

RecordedTrace StepTraceRecorder::trace(const std::string& program) const {
  const std::lock_guard lock(mutex_);
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
