#include "replay_walk.h"

#include <algorithm>
#include <iterator>

#include "spillway/planner/swap_plan.h"
#include "touch_intervals.h"

namespace spillway::planner {

using profile::kCarriedIn;
using profile::kSurvives;
using profile::TapeUse;
using profile::TapeValue;

namespace {

bool is_alive_before(const TapeValue& value, OpIndex op) {
  return (value.birth == kCarriedIn || value.birth < op) && value.death >= op;
}

}  // namespace

// Between two operators of the step a value is there as in the original tape, or it was dropped;
// then `state_` says what of it came back for others. Only around the operator that is provided for
// there is more to know: that is noted per value that is looked at (`presence_`), and void with the
// next one.
ReplayWalk::ReplayWalk(const Recomputation& all)
    : all_(all),
      tape_(all.tape_),
      state_(all.tape_.values.size()),
      presence_(all.tape_.values.size()) {}

std::vector<OpIndex> ReplayWalk::restore_alone(ValueIndex value, OpIndex before, std::size_t most) {
  begin_restoring(before, most);
  replays_.clear();
  state_[value] = {true, false, kAbsent};
  const bool is_possible = restore(value, all_.version_before(value, before));
  state_[value] = State{};
  std::vector<OpIndex> ops;
  if (!is_possible) return ops;
  for (const Replay& replay : replays_) ops.push_back(replay.op);
  return ops;
}

std::vector<OpIndex> ReplayWalk::cheapest_replays(ValueIndex value, OpIndex after) {
  const OpIndex next = all_.next_use(value, after);
  return next == kNoOp ? std::vector<OpIndex>{} : restore_alone(value, next);
}

std::vector<ReplayWalk::DropMoment> ReplayWalk::moments_of(std::span<const Drop> drops) {
  std::vector<DropMoment> moments;
  for (const Drop& drop : drops) {
    const OpIndex next = all_.next_use(drop.value, drop.after);
    if (next == kNoOp) {
      // Only what others need of it: from its death on it is not there any more.
      const OpIndex death = tape_.values[drop.value].death;
      if (death != kSurvives) moments.push_back({death, drop});
      // Asked for each alone, with all others there: what that cannot bring back, no set of drops
      // can.
    } else if (!restore_alone(drop.value, next).empty()) {
      moments.push_back({drop.after, drop});
    }
  }
  std::stable_sort(moments.begin(), moments.end(),
                   [](const DropMoment& a, const DropMoment& b) { return a.op < b.op; });
  return moments;
}

std::optional<std::vector<Replay>> ReplayWalk::walk(std::span<const Drop> drops,
                                                    std::size_t most_in_all) {
  const std::vector<DropMoment> moments = moments_of(drops);
  replays_.clear();
  begun_in_all_ = 0;
  auto next = moments.begin();
  // In the order of the step: what runs again depends on what earlier replays have left there.
  for (OpIndex op = 0; op < tape_.ops.size() && begun_in_all_ <= most_in_all; ++op) {
    bring_back_inputs(op);
    for (; next != moments.end() && next->op == op; ++next)
      state_[next->drop.value] = {true, next->drop.each_time, kAbsent};
  }
  state_.assign(state_.size(), State{});
  if (begun_in_all_ > most_in_all) return std::nullopt;
  return std::move(replays_);
}

void ReplayWalk::bring_back_inputs(OpIndex op) {
  bool is_begun = false;
  for (const TapeUse& use : uses_of(tape_, op)) {
    if (!state_[use.value].is_dropped) continue;
    // Most operators find all their inputs, and need no bookkeeping.
    if (!is_begun) begin_restoring(op, kMostReplays);
    is_begun = true;
    restore(use.value, all_.version_before(use.value, op));
    // Back for good: until it is dropped again, it is there as in the original tape.
    state_[use.value] = State{};
  }
  if (!is_begun) return;
  keep_parents();
  begun_in_all_ += begun_;
}

void ReplayWalk::begin_restoring(OpIndex before, std::size_t most) {
  before_ = before;
  begun_ = 0;
  most_ = most;
  seen_.clear();
  // A new number makes all that was noted of values void, without touching a vector of all of them.
  ++restoring_;
}

/// What was dropped and came on the way stays until its own next use, unless it is not to.
void ReplayWalk::keep_parents() {
  for (const ValueIndex value : seen_) {
    State& state = state_[value];
    if (state.is_dropped)
      state.version = state.drops_each_time ? kAbsent : presence_[value].version;
  }
}

std::uint32_t& ReplayWalk::version_of(ValueIndex value) {
  Presence& presence = presence_[value];
  if (presence.seen_in != restoring_) {
    const bool is_there = is_alive_before(tape_.values[value], before_);
    presence = {restoring_, is_there ? all_.version_before(value, before_) : kAbsent};
    if (state_[value].is_dropped) presence.version = state_[value].version;
    seen_.push_back(value);
  }
  return presence.version;
}

/// Whether nothing that is still needed would be overwritten by recomputing the value.
bool ReplayWalk::is_replaceable(ValueIndex value) const {
  return state_[value].is_dropped || !is_alive_before(tape_.values[value], before_);
}

bool ReplayWalk::restore(ValueIndex value, std::uint32_t version) {
  const std::uint32_t found = version_of(value);
  if (found == version) return true;
  // Another content of it is alive, which an operator later in the step still needs.
  if (!is_replaceable(value)) return false;
  const auto writers = all_.writers(value);
  // An older content goes on from where it stands; a newer one is of no use, and all is made anew.
  const std::uint32_t from = found != kAbsent && found < version ? found + 1 : 0;
  for (std::uint32_t i = from; i <= version; ++i) {
    // Its inputs may have brought it this far.
    const std::uint32_t now = version_of(value);
    if (now != kAbsent && now >= i && now <= version) continue;
    if (!replay(writers[i].op)) return false;
  }
  return version_of(value) == version;
}

bool ReplayWalk::replay(OpIndex op) {
  if (op == kCarriedIn || !tape_.ops[op].is_replayable) return false;
  // Counted before its inputs are looked for, so that it bounds the depth of the recursion, too.
  if (++begun_ > most_) return false;
  for (const TapeUse& use : uses_of(tape_, op)) {
    if (!restore(use.value, all_.version_before(use.value, op))) return false;
  }
  replays_.push_back({before_, op});
  for (const TapeUse& use : uses_of(tape_, op)) {
    if (use.writes) ++version_of(use.value);
  }
  for (const ValueIndex born : all_.births_.of(op)) {
    // A result that is there stays as it is: it may hold writes that this run does not make.
    if (version_of(born) == kAbsent) version_of(born) = 0;
  }
  return true;
}

Recomputation::Recomputation(const StepTape& tape) : tape_(tape), births_(made_per_op(tape)) {
  const std::size_t value_count = tape.values.size();
  std::vector<std::vector<Writer>> writers(value_count);
  std::vector<std::vector<Touch>> touches(value_count);
  for (ValueIndex i = 0; i < value_count; ++i) {
    const auto& value = tape.values[i];
    // Several operators fill a shared page, so none of them brings it back: to replays it was
    // always there.
    writers[i].push_back({value.is_shared ? profile::kCarriedIn : value.birth, 0});
  }
  for (OpIndex op = 0; op < tape.ops.size(); ++op) {
    for (const TapeUse& use : uses_of(tape, op)) {
      // The version of a value counts its writes in place. A replay may run where it finds each
      // input in the version that the first run found.
      const std::uint32_t version = writers[use.value].back().version;
      touches[use.value].push_back({op, version});
      if (use.writes) writers[use.value].push_back({op, version + 1});
    }
  }
  for (ValueIndex i = 0; i < value_count; ++i) {
    first_writer_.push_back(static_cast<std::uint32_t>(writers_.size()));
    writers_.insert(writers_.end(), writers[i].begin(), writers[i].end());
    first_touch_.push_back(static_cast<std::uint32_t>(touches_.size()));
    touches_.insert(touches_.end(), touches[i].begin(), touches[i].end());
  }
  first_writer_.push_back(static_cast<std::uint32_t>(writers_.size()));
  first_touch_.push_back(static_cast<std::uint32_t>(touches_.size()));
}

std::span<const Recomputation::Writer> Recomputation::writers(ValueIndex value) const {
  return {writers_.data() + first_writer_[value], writers_.data() + first_writer_[value + 1]};
}

std::span<const Recomputation::Touch> Recomputation::touches(ValueIndex value) const {
  return {touches_.data() + first_touch_[value], touches_.data() + first_touch_[value + 1]};
}

/// The version that the value has right before the operator, in the original tape.
std::uint32_t Recomputation::version_before(ValueIndex value, OpIndex op) const {
  const auto all = writers(value);  // The birth, then writes in the order of their operators.
  const auto next = std::lower_bound(all.begin() + 1, all.end(), op,
                                     [](const Writer& each, OpIndex at) { return each.op < at; });
  return std::prev(next)->version;
}

OpIndex Recomputation::next_use(ValueIndex value, OpIndex after) const {
  const auto all = touches(value);
  const auto next = std::upper_bound(all.begin(), all.end(), after,
                                     [](OpIndex op, const Touch& touch) { return op < touch.op; });
  return next == all.end() ? kNoOp : next->op;
}

bool Recomputation::can_drop(ValueIndex value, OpIndex after) const {
  return ReplayWalk(*this).can_drop(value, after);
}

std::vector<Replay> Recomputation::replays(std::span<const Drop> drops) const {
  return *ReplayWalk(*this).walk(drops);
}

}  // namespace spillway::planner
