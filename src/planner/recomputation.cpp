#include "spillway/planner/recomputation.h"

#include <algorithm>
#include <optional>

#include "spillway/base/error.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

using profile::kCarriedIn;
using profile::kSurvives;
using profile::TapeOp;
using profile::TapeUse;
using profile::TapeValue;

namespace {

// Nothing is worth computing again that takes more operators than this; bounds the recursion, too.
constexpr std::size_t kMostReplays = 4096;

std::span<const TapeUse> uses_of(const StepTape& tape, OpIndex op) {
  return {tape.uses.data() + tape.ops[op].first_use, tape.ops[op].use_count};
}

bool is_alive_before(const TapeValue& value, OpIndex op) {
  return (value.birth == kCarriedIn || value.birth < op) && value.death >= op;
}

}  // namespace

// --- What the tape says -----------------------------------------------------------------------

Recomputation::Recomputation(const StepTape& tape) : tape_(tape) {
  const std::size_t value_count = tape.values.size();
  std::vector<std::vector<Writer>> writers(value_count);
  std::vector<std::vector<Touch>> touches(value_count);
  for (ValueIndex i = 0; i < value_count; ++i) writers[i].push_back({tape.values[i].birth, 0});
  for (OpIndex op = 0; op < tape.ops.size(); ++op) {
    for (const TapeUse& use : uses_of(tape, op)) {
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
  std::vector<OpIndex> births;
  for (const TapeValue& value : tape.values) births.push_back(value.birth);
  std::vector<std::vector<ValueIndex>> born(tape.ops.size());
  for (ValueIndex i = 0; i < value_count; ++i)
    if (births[i] != kCarriedIn) born[births[i]].push_back(i);
  for (const auto& values : born) {
    first_birth_.push_back(static_cast<std::uint32_t>(births_.size()));
    births_.insert(births_.end(), values.begin(), values.end());
  }
  first_birth_.push_back(static_cast<std::uint32_t>(births_.size()));
}

std::span<const Recomputation::Writer> Recomputation::writers(ValueIndex value) const {
  return {writers_.data() + first_writer_[value], writers_.data() + first_writer_[value + 1]};
}

std::span<const Recomputation::Touch> Recomputation::touches(ValueIndex value) const {
  return {touches_.data() + first_touch_[value], touches_.data() + first_touch_[value + 1]};
}

/// The version that the value has right before the operator, in the original tape.
std::uint32_t Recomputation::version_before(ValueIndex value, OpIndex op) const {
  std::uint32_t version = 0;
  for (const Writer& writer : writers(value).subspan(1)) {
    if (writer.op >= op) break;
    version = writer.version;
  }
  return version;
}

OpIndex Recomputation::next_use(ValueIndex value, OpIndex after) const {
  const auto all = touches(value);
  const auto next = std::upper_bound(all.begin(), all.end(), after,
                                     [](OpIndex op, const Touch& touch) { return op < touch.op; });
  return next == all.end() ? kNoOp : next->op;
}

// --- What has to run again --------------------------------------------------------------------

/// Walks through the step with what is there, and notes the replays that bring back what is not.
class ReplayWalk {
 public:
  /// With `walks`, values are there as drops say; without, as in the original tape.
  explicit ReplayWalk(const Recomputation& all) : all_(all), tape_(all.tape_) {}

  /// Brings `value` into the state in which operator `before` finds it. False if it cannot be.
  bool restore_alone(ValueIndex value, OpIndex before) {
    begin_restoring(before);
    present_.assign(1, {value, kAbsent});
    const bool is_possible = restore(value, all_.version_before(value, before));
    return is_possible && !replays_.empty();
  }

  void walk(std::span<const Drop> drops) {
    state_.assign(tape_.values.size(), State{});
    std::vector<Drop> sorted(drops.begin(), drops.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Drop& a, const Drop& b) { return a.after < b.after; });
    auto next = sorted.begin();
    for (OpIndex op = 0; op < tape_.ops.size(); ++op) {
      bring_back_inputs(op);
      for (; next != sorted.end() && next->after <= op; ++next) {
        if (next->after == op && all_.can_drop(next->value, op)) drop(*next);
      }
    }
  }

  std::vector<Replay> take() { return std::move(replays_); }

 private:
  static constexpr std::uint32_t kAbsent = static_cast<std::uint32_t>(-1);

  struct Presence {
    ValueIndex value;
    std::uint32_t version;  ///< kAbsent: it has to be computed.
  };
  struct State {
    bool is_dropped = false;
    bool drops_again = false;
    std::uint32_t version = kAbsent;  ///< Of a dropped value that is there in part or for now.
  };

  void drop(const Drop& drop) {
    state_[drop.value] = {true, drop.again, kAbsent};
    dropped_.push_back(drop.value);
  }

  void bring_back_inputs(OpIndex op) {
    if (dropped_.empty()) return;
    bool is_begun = false;
    for (const TapeUse& use : uses_of(tape_, op)) {
      State& state = state_[use.value];
      if (!state.is_dropped) continue;
      if (!is_begun) begin_restoring(op);
      is_begun = true;
      restore(use.value, all_.version_before(use.value, op));
      state = State{};
      std::erase(dropped_, use.value);
    }
    if (is_begun) keep_parents();
  }

  void begin_restoring(OpIndex before) {
    before_ = before;
    begun_ = 0;
    present_.clear();
    for (const ValueIndex value : dropped_) present_.push_back({value, state_[value].version});
  }

  /// What was dropped and came on the way stays until its own next use, unless it is not to.
  void keep_parents() {
    for (const Presence& each : present_) {
      if (each.value >= state_.size() || !state_[each.value].is_dropped) continue;
      state_[each.value].version = state_[each.value].drops_again ? kAbsent : each.version;
    }
  }

  std::uint32_t& version_of(ValueIndex value) {
    for (Presence& each : present_) {
      if (each.value == value) return each.version;
    }
    const TapeValue& lived = tape_.values[value];
    const bool is_there = is_alive_before(lived, before_);
    present_.push_back({value, is_there ? all_.version_before(value, before_) : kAbsent});
    return present_.back().version;
  }

  bool is_there(ValueIndex value, std::uint32_t version) { return version_of(value) == version; }

  /// Whether nothing that is still needed would be overwritten by computing the value again.
  bool is_replaceable(ValueIndex value) {
    const TapeValue& lived = tape_.values[value];
    if (!is_alive_before(lived, before_)) return true;
    if (!state_.empty()) return state_[value].is_dropped;
    return value == present_.front().value;
  }

  bool restore(ValueIndex value, std::uint32_t version) {
    if (is_there(value, version)) return true;
    if (!is_replaceable(value)) return false;
    const auto writers = all_.writers(value);
    const std::uint32_t found = version_of(value);
    const std::uint32_t from = found != kAbsent && found < version ? found + 1 : 0;
    for (std::uint32_t i = from; i <= version; ++i) {
      // Its inputs may have brought it this far.
      const std::uint32_t now = version_of(value);
      if (now != kAbsent && now >= i && now <= version) continue;
      if (!replay(writers[i].op)) return false;
    }
    return is_there(value, version);
  }

  bool replay(OpIndex op) {
    if (op == kCarriedIn || !tape_.ops[op].is_replayable) return false;
    if (++begun_ > kMostReplays) return false;
    for (const TapeUse& use : uses_of(tape_, op)) {
      if (!restore(use.value, all_.version_before(use.value, op))) return false;
    }
    replays_.push_back({before_, op});
    for (const TapeUse& use : uses_of(tape_, op)) {
      if (use.writes) ++version_of(use.value);
    }
    for (std::uint32_t i = all_.first_birth_[op]; i < all_.first_birth_[op + 1]; ++i) {
      const ValueIndex born = all_.births_[i];
      if (version_of(born) == kAbsent) version_of(born) = 0;
    }
    return true;
  }

  const Recomputation& all_;
  const StepTape& tape_;
  OpIndex before_ = 0;
  std::vector<Presence> present_;  ///< Around the operator that is being provided for.
  std::vector<State> state_;       ///< Per value; empty when a single one is looked at.
  std::vector<ValueIndex> dropped_;
  std::vector<Replay> replays_;
  std::size_t begun_ =
      0;  ///< Replays before this operator, those included that are being provided.
};

std::vector<OpIndex> Recomputation::cheapest_replays(ValueIndex value, OpIndex after) const {
  const OpIndex next = next_use(value, after);
  if (next == kNoOp) return {};
  ReplayWalk walk(*this);
  if (!walk.restore_alone(value, next)) return {};
  std::vector<OpIndex> ops;
  for (const Replay& replay : walk.take()) ops.push_back(replay.op);
  return ops;
}

bool Recomputation::can_drop(ValueIndex value, OpIndex after) const {
  return !cheapest_replays(value, after).empty();
}

std::vector<Replay> Recomputation::replays(std::span<const Drop> drops) const {
  ReplayWalk walk(*this);
  walk.walk(drops);
  return walk.take();
}

}  // namespace spillway::planner
