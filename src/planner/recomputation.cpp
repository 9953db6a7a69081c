#include "spillway/planner/recomputation.h"

#include <algorithm>
#include <iterator>

#include "replay_walk.h"
#include "spillway/planner/swap_plan.h"
#include "touch_intervals.h"

namespace spillway::planner {

using profile::TapeUse;

// --- What the tape says -----------------------------------------------------------------------

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
