#include <algorithm>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/planner/recomputation.h"
#include "touch_intervals.h"

namespace spillway::planner {

using profile::kCarriedIn;
using profile::kNoValue;
using profile::kSurvives;
using profile::TapeOp;
using profile::TapeUse;
using profile::TapeValue;

namespace {

/// Per operator: pages of the values that are born in it.
std::vector<std::uint32_t> pages_made(const StepTape& tape) {
  std::vector<std::uint32_t> made(tape.ops.size(), 0);
  for (const TapeValue& value : tape.values)
    if (value.birth != kCarriedIn && !value.is_shared) made[value.birth] += value.pages;
  return made;
}

Duration replay_time(const StepTape& tape, const std::vector<std::uint32_t>& made, OpIndex op) {
  return tape.ops[op].time + made[op] * tape.replay_extra_per_page;
}

constexpr std::uint32_t kAbsent = static_cast<std::uint32_t>(-1);

/// One thing that happens to a value of the original tape, by position in the new one.
struct Event {
  enum class Kind : std::uint8_t { kBirth, kUse };
  OpIndex at = 0;
  Kind kind = Kind::kUse;
  bool is_replay = false;
  std::uint32_t needs = 0;  ///< Of a use: the version that it finds. Later ones hold more writes.
  std::uint32_t use = 0;    ///< Of a use: its place among those of the new tape.
  bool writes = false;
};

/// What is dropped and recomputed becomes several values, each with one stretch of life:
///
///     original     A makes v    B reads v    C …    D reads v
///     rewritten    A makes v    B reads v    C …    A makes w    D reads w
///                  \_____ v _____/                  \_____ w _____/
///
/// Levels, intervals, swaps and bounds then know nothing of replays. All events of a value are
/// collected first, in the order of the new tape: whether a presence ends after an event depends on
/// whether the next one is a replay that makes it again.
class Rewriter {
 public:
  Rewriter(const StepTape& tape, std::span<const Replay> replays) : tape_(tape), replays_(replays) {
    check_replays();
  }

  RewrittenTape rewrite() {
    lay_out_ops();
    collect_events();
    out_.tape.values = tape_.values;
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) out_.value_of.push_back(i);
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      if (is_touched_by_replay_[i]) {
        split(i);
      } else {
        move(i);
      }
    }
    return std::move(out_);
  }

 private:
  void check_replays() const {
    OpIndex before = 0;
    for (const Replay& replay : replays_) {
      if (replay.before >= tape_.ops.size() || replay.op >= replay.before)
        throw PlanError("operator {} cannot run again before operator {} of {}", replay.op,
                        replay.before, tape_.ops.size());
      if (replay.before < before)
        throw PlanError("replays before operator {} stand behind those before {}", replay.before,
                        before);
      if (!tape_.ops[replay.op].is_replayable)
        throw PlanError("operator {} is not one that may run again", replay.op);
      before = replay.before;
    }
  }

  void lay_out_ops() {
    auto replay = replays_.begin();
    for (OpIndex op = 0; op < tape_.ops.size(); ++op) {
      for (; replay != replays_.end() && replay->before == op; ++replay) add_op(replay->op, true);
      moved_to_.push_back(static_cast<OpIndex>(out_.op_of.size()));
      add_op(op, false);
    }
  }

  void add_op(OpIndex op, bool is_replay) {
    TapeOp& added = out_.tape.ops.emplace_back(tape_.ops[op]);
    if (is_replay) added.time = replay_time(tape_, pages_made_, op);
    added.first_use = static_cast<std::uint32_t>(out_.tape.uses.size());
    // Shared pages are never made again, so replays do without them and must not wait for them.
    if (is_replay) added.shared_count = 0;
    const auto uses = is_replay ? uses_of(tape_, op) : touches_of(tape_, op);
    out_.tape.uses.insert(out_.tape.uses.end(), uses.begin(), uses.end());
    out_.op_of.push_back(op);
    out_.is_replay.push_back(is_replay);
  }

  void collect_events() {
    events_.resize(tape_.values.size());
    is_touched_by_replay_.assign(tape_.values.size(), false);
    const PerOp births = made_per_op(tape_);
    std::vector<std::uint32_t> version(tape_.values.size(), 0);
    std::vector<std::uint32_t> found(tape_.uses.size());  // By place in the original tape.
    for (OpIndex at = 0; at < out_.op_of.size(); ++at) {
      const OpIndex op = out_.op_of[at];
      const bool is_replay = out_.is_replay[at];
      for (std::uint32_t i = 0; i < tape_.ops[op].use_count; ++i) {
        const TapeUse& use = tape_.uses[tape_.ops[op].first_use + i];
        std::uint32_t& needs = found[tape_.ops[op].first_use + i];
        // Replays stand behind the first run of their operator, so what that found is known when
        // they come, and they have to find the same.
        if (!is_replay) needs = use.writes ? version[use.value]++ : version[use.value];
        events_[use.value].push_back(
            {at, Event::Kind::kUse, is_replay, needs, out_.tape.ops[at].first_use + i, use.writes});
        is_touched_by_replay_[use.value] = is_touched_by_replay_[use.value] || is_replay;
      }
      for (const ValueIndex value : births.of(op)) {
        events_[value].push_back({at, Event::Kind::kBirth, is_replay, 0, 0, false});
        is_touched_by_replay_[value] = is_touched_by_replay_[value] || is_replay;
      }
    }
  }

  OpIndex moved(OpIndex op) const { return op == kSurvives ? kSurvives : moved_to_[op]; }

  /// A value that no replay touches lives as before.
  void move(ValueIndex value) {
    out_.tape.values[value].birth = moved(tape_.values[value].birth);
    out_.tape.values[value].death = moved(tape_.values[value].death);
  }

  /// Whether what was just computed is what the next use asks for.
  static bool is_needed(const std::vector<Event>& events, std::size_t birth) {
    if (birth + 1 == events.size()) return false;
    const Event& next = events[birth + 1];
    return next.kind == Event::Kind::kUse && next.needs == 0;
  }

  /// One value of the new tape per presence of the original one.
  void split(ValueIndex value) {
    const OpIndex death = moved(tape_.values[value].death);
    const std::vector<Event>& events = events_[value];
    ValueIndex presence = value;  // The number of the current one.
    out_.tape.values[value].birth = moved(tape_.values[value].birth);
    std::uint32_t version = tape_.values[value].birth == kCarriedIn ? 0 : kAbsent;
    // A value ends with its last touch, not where it is missed: that is what dropping it is for.
    OpIndex last_touch = version == kAbsent ? 0 : kCarriedIn;
    for (std::size_t i = 0; i < events.size(); ++i) {
      const Event& event = events[i];
      if (event.kind == Event::Kind::kBirth) {
        if (event.is_replay) {
          // An operator runs again for one of its results; the others would only take room.
          if (!is_needed(events, i)) continue;
          end_at(presence, last_touch);
          // A value of its own, so that swaps, levels and bounds see two stretches of life, and
          // need to know nothing of replays.
          presence = add_presence(value, event.at);
        }
        version = 0;
      } else {
        check_use(value, event, version, presence, death);
        // From here on the operator uses what is there at its place, whichever run has made it.
        out_.tape.uses[event.use].value = presence;
        if (event.writes) ++version;
      }
      last_touch = event.at;
    }
    // What was computed after the value had died is only an ingredient of something else.
    const bool is_over = death != kSurvives && out_.tape.values[presence].birth != kCarriedIn &&
                         death < out_.tape.values[presence].birth;
    if (is_over) {
      end_at(presence, last_touch);
    } else {
      out_.tape.values[presence].death = death;
      out_.tape.values[presence].becomes = tape_.values[value].becomes;
    }
  }

  void check_use(ValueIndex value, const Event& event, std::uint32_t version, ValueIndex presence,
                 OpIndex death) const {
    const OpIndex begin = out_.tape.values[presence].birth;
    // The version alone does not tell: what has died holds the version of its end.
    const bool is_dead =
        death != kSurvives && event.at > death && (begin == kCarriedIn || begin <= death);
    if (version == event.needs && !is_dead) return;
    const OpIndex op = out_.op_of[event.at];
    // Told apart, because a user can change where an operator runs again, but not what the step
    // does.
    if (event.is_replay) {
      const ReplayError::Cause cause = cause_of(value, event.at);
      if (cause.is_written || cause.by != kSurvives) throw ReplayError(cause);
    }
    throw PlanError("operator {}{} would not find value {} as it was", op,
                    event.is_replay ? ", run again before another one," : "", value);
  }

  /// Why the replay at that place would not find the value: who wrote it first since, or its end.
  ReplayError::Cause cause_of(ValueIndex value, OpIndex at) const {
    ReplayError::Cause cause{out_.op_of[at], 0, value, tape_.values[value].death, false};
    OpIndex next = at;
    while (out_.is_replay[next]) ++next;
    cause.before = out_.op_of[next];
    for (OpIndex op = cause.op; op < cause.before && !cause.is_written; ++op) {
      for (const TapeUse& use : uses_of(tape_, op)) {
        if (use.value != value || !use.writes) continue;
        cause.by = op;
        cause.is_written = true;
      }
    }
    return cause;
  }

  void end_at(ValueIndex presence, OpIndex last_touch) {
    TapeValue& ended = out_.tape.values[presence];
    // A value that the step found and never used goes before its first operator.
    ended.death = last_touch == kCarriedIn ? 0 : last_touch;
    ended.becomes = kNoValue;
  }

  ValueIndex add_presence(ValueIndex value, OpIndex birth) {
    out_.tape.values.push_back({tape_.values[value].pages, birth, kSurvives, kNoValue, false});
    out_.value_of.push_back(value);
    return static_cast<ValueIndex>(out_.tape.values.size() - 1);
  }

  const StepTape& tape_;
  const std::span<const Replay> replays_;
  // Second runs are measured to take longer than first ones for each page that they fill.
  const std::vector<std::uint32_t> pages_made_ = pages_made(tape_);
  RewrittenTape out_;
  std::vector<OpIndex> moved_to_;  ///< Per operator of the original tape.
  std::vector<std::vector<Event>> events_;
  std::vector<bool> is_touched_by_replay_;
};

}  // namespace

ReplayError::ReplayError(const Cause& cause)
    : PlanError(cause.is_written ? "operator {} cannot run again before operator {}: value {}, "
                                   "which it reads, is written in place by operator {} before"
                                 : "operator {} cannot run again before operator {}: value {}, "
                                   "which it reads, ends with operator {} before",
                cause.op, cause.before, cause.value, cause.by),
      cause_(cause) {}

RewrittenTape rewrite_tape(const StepTape& tape, std::span<const Replay> replays) {
  return Rewriter(tape, replays).rewrite();
}

std::vector<OpIndex> places_in(const RewrittenTape& steps) {
  std::vector<OpIndex> places;
  for (OpIndex i = 0; i < steps.op_of.size(); ++i) {
    if (!steps.is_replay[i]) places.push_back(i);
  }
  return places;
}

StepTape retimed(const RewrittenTape& steps, const StepTape& tape) {
  const std::vector<std::uint32_t> made = pages_made(tape);
  StepTape timed = steps.tape;
  for (OpIndex place = 0; place < timed.ops.size(); ++place) {
    const OpIndex op = steps.op_of[place];
    timed.ops[place].time =
        steps.is_replay[place] ? replay_time(tape, made, op) : tape.ops[op].time;
  }
  return timed;
}

double replay_seconds(const StepTape& tape, std::span<const Replay> replays) {
  const std::vector<std::uint32_t> made = pages_made(tape);
  double sum = 0.0;  // A step may take years, and `Duration` ends after 292 of them.
  for (const Replay& replay : replays) sum += seconds(replay_time(tape, made, replay.op));
  return sum;
}

}  // namespace spillway::planner
