#include "planning/step_trace.h"

#include <algorithm>
#include <array>

#include "spillway/base/error.h"
#include "spillway/profile/value_classes.h"

namespace spillway::cli {

using planner::Direction;
using planner::OperatorEvent;
using planner::StepEvents;
using planner::StepPlan;
using planner::TransferEvent;
using planner::WaitEvent;
using planner::WaitReason;
using profile::StepTrace;
using profile::TraceSpan;

namespace {

// Two transfers follow each other without a pause when less than that lies between them.
constexpr double kNoPause = 1e-9;

TraceSpan span_of(std::string_view lane, std::string name, double begin, double end) {
  begin = std::max(0.0, begin);
  return {lane, std::move(name), begin, std::max(0.0, end - begin), {}};
}

class TraceBuilder {
 public:
  TraceBuilder(const PlanningStep& step, const StepPlan& plan) : step_(step), plan_(plan) {
    trace_.title = message("predicted: {}", step.path);
    trace_.source = profile::TraceSource::kPrediction;
    trace_.marks = {{0.0, "step"}};
  }

  void add(const OperatorEvent& event) {
    const planner::OpIndex op = plan_.steps.op_of[event.op];
    const profile::OpKind& kind = step_.profile.kinds[step_.profile.kind_of_op[op]];
    const bool is_replay = plan_.steps.is_replay[event.op];
    const std::string prefix(is_replay ? profile::kReplayPrefix : "");
    TraceSpan span = span_of(profile::kComputeLane, prefix + kind.name, event.begin, event.end);
    span.facts = {{std::string(profile::kOperatorFact), std::to_string(op)},
                  {"arguments", kind.arguments}};
    trace_.spans.push_back(std::move(span));
  }

  void add(const WaitEvent& event) {
    const bool is_for_room = event.reason == WaitReason::kRoom;
    const std::string name(is_for_room ? profile::kRoomWaitSpan : profile::kWaitSpan);
    TraceSpan span = span_of(profile::kComputeLane, name, event.begin, event.end);
    span.facts = {{"before", operator_text(step_, plan_.steps.op_of[event.op])}};
    if (event.value != profile::kNoValue)
      span.facts.emplace_back("for", value_text(step_, plan_.steps.value_of[event.value]));
    trace_.spans.push_back(std::move(span));
  }

  /// The model moves eight pages at a time; a value's transfer is one span nevertheless.
  void add(const TransferEvent& event) {
    Joined& joined = joined_[(event.direction == Direction::kReadIn ? 1 : 0) +
                             (event.tier == planner::Tier::kFar ? 2 : 0)];
    trace_.has_far_tier |= event.tier == planner::Tier::kFar;
    const bool goes_on = joined.is_open && joined.event.value == event.value &&
                         joined.event.is_demanded == event.is_demanded &&
                         event.begin - joined.event.end < kNoPause;
    if (goes_on) {
      joined.event.end = event.end;
      joined.event.pages += event.pages;
      joined.reaches_over_end |= event.pages == 0;
      return;
    }
    close(joined);
    joined = {true, event.pages == 0, event};
  }

  void add(const planner::ResidencyEvent& event) {
    const double bytes = static_cast<double>(in_memory(step_, event.pages).count());
    trace_.resident_bytes.push_back({std::max(0.0, event.at), bytes});
  }

  StepTrace finish(const planner::StepEstimate& estimate) {
    for (Joined& joined : joined_) close(joined);
    if (estimate.interference_seconds > 0.0) {
      TraceSpan span =
          span_of(profile::kComputeLane, std::string(profile::kSlowdownSpan),
                  estimate.step_seconds - estimate.interference_seconds, estimate.step_seconds);
      span.facts = {{"note", "spread over the step; the model knows only the sum"}};
      trace_.spans.push_back(std::move(span));
    }
    trace_.marks.push_back({estimate.step_seconds, "end"});
    std::stable_sort(trace_.spans.begin(), trace_.spans.end(), [](const auto& a, const auto& b) {
      return a.begin_seconds < b.begin_seconds;
    });
    return std::move(trace_);
  }

 private:
  struct Joined {
    bool is_open = false;
    bool reaches_over_end = false;
    TransferEvent event;
  };

  static std::string_view lane_of(planner::Tier tier, bool is_read) {
    if (tier == planner::Tier::kFar)
      return is_read ? profile::kFarReadInLane : profile::kFarWriteOutLane;
    return is_read ? profile::kReadInLane : profile::kWriteOutLane;
  }

  void close(const Joined& joined) {
    if (!joined.is_open) return;
    const TransferEvent& event = joined.event;
    const bool is_read = event.direction == Direction::kReadIn;
    const planner::ValueIndex value = plan_.steps.value_of[event.value];
    TraceSpan span = span_of(lane_of(event.tier, is_read),
                             profile::value_name(step_.profile.class_of_value[value], value),
                             event.begin, event.end);
    span.facts = {{std::string(profile::kBytesFact),
                   std::to_string((event.pages * step_.profile.page_size).count())},
                  {"tensor", value_text(step_, value)}};
    if (event.is_demanded) span.facts.emplace_back("awaited", "an operator stands and waits");
    if (event.begin < 0.0) span.facts.emplace_back("begin", "in the step before");
    if (joined.reaches_over_end) span.facts.emplace_back("end", "in the next step");
    trace_.spans.push_back(std::move(span));
  }

  const PlanningStep& step_;
  const StepPlan& plan_;
  StepTrace trace_;
  std::array<Joined, 4> joined_;  ///< Writes and reads, of the near tier and of the far one.
};

}  // namespace

StepTrace trace_of(const PlanningStep& step, const StepPlan& plan, const StepEvents& events,
                   const planner::StepEstimate& estimate) {
  TraceBuilder builder(step, plan);
  for (const OperatorEvent& event : events.operators) builder.add(event);
  for (const WaitEvent& event : events.waits) builder.add(event);
  for (const TransferEvent& event : events.transfers) builder.add(event);
  for (const planner::ResidencyEvent& event : events.residency) builder.add(event);
  return builder.finish(estimate);
}

}  // namespace spillway::cli
