#include "rank_log.h"

#include <algorithm>
#include <string>
#include <utility>

namespace spillway::split {
namespace {

using profile::TraceSpan;
using runtime::RecordedTrace;
using schedule::Action;
using schedule::ActionKind;
using Facts = std::vector<std::pair<std::string, std::string>>;

void add_facts(Facts& facts, const Action& action) {
  facts.emplace_back("stage", std::to_string(action.stage));
  facts.emplace_back("micro-batch", std::to_string(action.micro_batch));
  facts.emplace_back("direction", action.kind == ActionKind::kForward ? "forward" : "backward");
}

bool is_shown(TimePoint begin, TimePoint end, const RecordedTrace& trace) {
  return end > trace.begin && begin < trace.end;
}

/// Where a span begins that may have begun before the trace.
TraceSpan span_of(std::string_view lane, std::string name, TimePoint begin, TimePoint end,
                  const RecordedTrace& trace) {
  begin = std::max(begin, trace.begin);
  return {lane, std::move(name), seconds(begin - trace.begin), seconds(end - begin), {}};
}

/// As schedules call it: "1RECV_F0" where stage 1 gets what its forward needs. Senders call it by
/// the same action: what has made the bytes may be several actions before.
std::string name_of(const RankLog::Message& message) {
  if (!message.action) return "value";
  Action action = *message.action;
  action.kind = action.kind == ActionKind::kForward ? ActionKind::kReceiveForward
                                                    : ActionKind::kReceiveBackward;
  return to_string(action);
}

}  // namespace

void RankLog::add(const Message& message) {
  if (messages_.size() >= most_) messages_.pop_front();
  messages_.push_back(message);
}

void RankLog::add_operator(const ForAction& action, TimePoint begin, TimePoint end) {
  const bool is_close =
      !actions_.empty() && begin - actions_.back().end < runtime::StallLedger::kNoticeable;
  if (action && goes_on_ && is_close && actions_.back().action == *action) {
    actions_.back().end = end;
    return;
  }
  goes_on_ = action.has_value();
  if (!action) return;
  if (actions_.size() >= most_) actions_.pop_front();
  actions_.push_back({*action, begin, end});
}

void RankLog::write_messages(RecordedTrace& into) const {
  for (const Message& message : messages_) {
    if (!is_shown(message.begin, message.end, into)) continue;
    const std::string_view lane = message.has_come ? profile::kReceiveLane : profile::kSendLane;
    TraceSpan span = span_of(lane, name_of(message), message.begin, message.end, into);
    span.facts = {
        {std::string(profile::kBytesFact), std::to_string(message.size.count())},
        {message.has_come ? "from rank" : "to rank", std::to_string(message.peer.value())}};
    if (message.action) add_facts(span.facts, *message.action);
    into.trace.spans.push_back(std::move(span));
    const TimePoint tip = message.has_come ? message.end : message.begin;
    if (tip >= into.begin)
      into.trace.arrows.push_back(
          {message.number, lane, seconds(tip - into.begin), message.has_come});
  }
}

void RankLog::write_actions(RecordedTrace& into) const {
  auto operators = into.trace.spans.begin();
  std::vector<TraceSpan> shown;
  for (const Span& action : actions_) {
    if (!is_shown(action.begin, action.end, into)) continue;
    TraceSpan span =
        span_of(profile::kActionLane, to_string(action.action), action.begin, action.end, into);
    add_facts(span.facts, action.action);
    // Spans of the recorder stand by their begins.
    const double end = span.begin_seconds + span.seconds;
    for (; operators != into.trace.spans.end() && operators->begin_seconds < end; ++operators)
      if (operators->lane == profile::kComputeLane &&
          operators->begin_seconds >= span.begin_seconds)
        add_facts(operators->facts, action.action);
    shown.push_back(std::move(span));
  }
  std::move(shown.begin(), shown.end(), std::back_inserter(into.trace.spans));
}

void RankLog::write(RecordedTrace& into) const {
  write_actions(into);
  write_messages(into);
}

}  // namespace spillway::split
