#include "planning/trace_overlay.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "planning/report_table.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::cli {

using planner::OpIndex;
using profile::StepTrace;
using profile::TraceSpan;

namespace {

constexpr std::size_t kShown = 5;

const std::string* fact(const TraceSpan& span, std::string_view name) {
  for (const auto& [key, value] : span.facts)
    if (key == name) return &value;
  return nullptr;
}

/// The operator of the step that the span is, if it is one and does not run again.
std::optional<OpIndex> operator_of(const TraceSpan& span) {
  if (span.lane != profile::kComputeLane || span.name.starts_with(profile::kReplayPrefix))
    return std::nullopt;
  const std::string* const text = fact(span, profile::kOperatorFact);
  if (text == nullptr) return std::nullopt;
  OpIndex op = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, status] = std::from_chars(text->data(), end, op);
  if (status != std::errc() || stop != end) return std::nullopt;
  return op;
}

struct Interval {
  std::string name;
  double begin = 0.0;
  double end = 0.0;
};

std::vector<Interval> steps_of(const StepTrace& trace) {
  std::vector<Interval> steps;
  for (std::size_t i = 0; i + 1 < trace.marks.size(); ++i)
    steps.push_back(
        {trace.marks[i].name, trace.marks[i].at_seconds, trace.marks[i + 1].at_seconds});
  return steps;
}

/// What of the trace lies within the interval, which begins at 0 then.
StepTrace cut(const StepTrace& trace, const Interval& step) {
  StepTrace part;
  part.title = message("{}: {}", trace.title, step.name);
  part.process = trace.process;
  part.source = trace.source;
  part.marks = {{0.0, step.name}, {step.end - step.begin, "end"}};
  for (const TraceSpan& span : trace.spans) {
    const double end = span.begin_seconds + span.seconds;
    if (span.begin_seconds >= step.end || end <= step.begin) continue;
    TraceSpan shown = span;
    shown.begin_seconds = std::max(0.0, span.begin_seconds - step.begin);
    shown.seconds = end - step.begin - shown.begin_seconds;
    part.spans.push_back(std::move(shown));
  }
  for (const profile::TraceCount& count : trace.resident_bytes) {
    if (count.at_seconds >= step.end) break;
    if (count.at_seconds <= step.begin) part.resident_bytes.clear();
    part.resident_bytes.push_back({std::max(0.0, count.at_seconds - step.begin), count.value});
  }
  return part;
}

/// Per operator, the time from its begin, with the waits and repetitions before it, to that of the
/// next one. Empty unless the step has just these operators, in this order.
std::vector<double> operator_seconds(const PlanningStep& step, const StepTrace& trace,
                                     double step_seconds) {
  std::vector<double> begins;
  std::optional<double> waits_since;
  for (const TraceSpan& span : trace.spans) {
    if (span.lane != profile::kComputeLane || span.name == profile::kSlowdownSpan) continue;
    const std::optional<OpIndex> op = operator_of(span);
    if (!op) {
      if (!waits_since) waits_since = span.begin_seconds;
      continue;
    }
    const double begin = waits_since.value_or(span.begin_seconds);
    waits_since.reset();
    if (!begins.empty() && *op + 1 == begins.size()) continue;  // Goes on after a wait.
    const auto& kinds = step.profile.kind_of_op;
    if (*op != begins.size() || *op >= kinds.size() ||
        step.profile.kinds[kinds[*op]].name != span.name)
      return {};
    begins.push_back(begin);
  }
  if (begins.size() != step.profile.tape.ops.size()) return {};
  begins.front() = 0.0;  // The trainer's own time before its first operator is part of the step.
  std::vector<double> times;
  for (std::size_t i = 0; i < begins.size(); ++i)
    times.push_back((i + 1 < begins.size() ? begins[i + 1] : step_seconds) - begins[i]);
  return times;
}

/// Of the largest differences, at most so many.
Table operator_table(const PlanningStep& step, const TraceOverlay& overlay, std::size_t most) {
  const std::vector<OperatorTimes>& times = overlay.operators;
  const auto text = [&](OpIndex op) { return operator_text(step, op); };
  return {
      std::min(most, times.size()),
      {{"differs most", "operator", of(times, &OperatorTimes::op, text)},
       {"planned", "planned_seconds", of(times, &OperatorTimes::planned_seconds, Figure::duration)},
       {"measured", "measured_seconds",
        of(times, &OperatorTimes::measured_seconds, Figure::duration)},
       {"number in the step", "number", of(times, &OperatorTimes::op)}}};
}

}  // namespace

TraceOverlay overlay(const PlanningStep& step, const StepTrace& predicted, const StepTrace& run,
                     const std::string& name) {
  TraceOverlay result;
  for (const Interval& each : steps_of(predicted)) result.planned_seconds = each.end;
  for (const TraceSpan& span : predicted.spans)
    if (span.name == profile::kSlowdownSpan) result.spread_slowdown_seconds += span.seconds;
  const std::vector<double> planned =
      operator_seconds(step, predicted, result.planned_seconds - result.spread_slowdown_seconds);
  const auto steps = steps_of(run);
  for (auto each = steps.rbegin(); each != steps.rend(); ++each) {
    StepTrace part = cut(run, *each);
    const auto measured = operator_seconds(step, part, each->end - each->begin);
    if (measured.empty()) continue;
    result.step = each->name;
    result.measured_seconds = each->end - each->begin;
    result.measured = std::move(part);
    for (OpIndex op = 0; op < measured.size(); ++op)
      result.operators.push_back({op, planned[op], measured[op]});
    std::stable_sort(result.operators.begin(), result.operators.end(),
                     [](const OperatorTimes& a, const OperatorTimes& b) {
                       return std::abs(a.difference()) > std::abs(b.difference());
                     });
    return result;
  }
  throw PlanError("{}: of its {} none has the {} of {} (trace a run of the "
                  "program that was profiled, with the same shapes, and with --plan where it has "
                  "tensors below --min-storage: spillway run --plan FILE --trace FILE)",
                  name, counted(steps.size(), "whole step"),
                  counted(step.profile.tape.ops.size(), "operator"), step.path);
}

std::string overlay_text(const PlanningStep& step, const TraceOverlay& overlay) {
  std::string text =
      line("measured", "{} of the run: {}, planned {} ({})", overlay.step,
           seconds_text(overlay.measured_seconds), seconds_text(overlay.planned_seconds),
           signed_percent_text(overlay.measured_seconds / overlay.planned_seconds - 1.0));
  if (overlay.spread_slowdown_seconds > 0.0)
    text += message("          {} of what is planned is the slowdown by transfers, in no operator "
                    "below\n",
                    seconds_text(overlay.spread_slowdown_seconds));
  return text + table_text(operator_table(step, overlay, kShown));
}

nlohmann::ordered_json overlay_json(const PlanningStep& step, const TraceOverlay& overlay) {
  constexpr std::size_t kMostListed = 20;
  return {{"step", overlay.step},
          {"step_seconds", overlay.measured_seconds},
          {"planned_slowdown_seconds", overlay.spread_slowdown_seconds},
          {"largest_differences", table_json(operator_table(step, overlay, kMostListed))}};
}

}  // namespace spillway::cli
