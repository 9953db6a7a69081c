#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/base/rank.h"
#include "spillway/runtime/recording/step_trace_recorder.h"
#include "spillway/schedule/schedule.h"

namespace spillway::split {

/// What is done for a stage and a micro-batch of a step; none: it belongs to neither.
using ForAction = std::optional<schedule::Action>;

/// The latest messages and actions of this rank, for traces. Reads no clock. One thread at a time.
class RankLog {
 public:
  /// Beyond `most` of each kind the oldest are forgotten.
  explicit RankLog(std::size_t most = 100'000) : most_(most) {}

  /// The executor hands a message to the transport, or takes what has come, for that time.
  struct Message {
    TimePoint begin, end;
    std::uint64_t number = 0;  ///< The same on both sides, of no other move of any shard.
    Bytes size;
    Rank peer;
    bool has_come = false;
    ForAction action{};  ///< Of the operator that needs it.
  };
  void add(const Message& message);
  /// An operator has run. Those of one action that follow each other closely are one span.
  void add_operator(const ForAction& action, TimePoint begin, TimePoint end);

  /// Adds to a trace what lies in its time, as spans of their own lanes with arrows, and tells its
  /// operators what they were for.
  void write(runtime::RecordedTrace& into) const;

 private:
  struct Span {
    schedule::Action action;
    TimePoint begin, end;
  };

  void write_messages(runtime::RecordedTrace& into) const;
  void write_actions(runtime::RecordedTrace& into) const;

  const std::size_t most_;
  std::deque<Message> messages_;
  std::deque<Span> actions_;
  bool goes_on_ = false;  ///< The latest operator was of the latest action.
};

}  // namespace spillway::split
