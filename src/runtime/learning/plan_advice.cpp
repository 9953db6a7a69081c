#include "plan_advice.h"

#include <algorithm>

namespace spillway::runtime {

using planner::PlannedSwap;
using profile::kCarriedIn;
using profile::kNoValue;
using profile::kSurvives;
using profile::OpIndex;
using profile::TapeOp;
using profile::ValueIndex;

namespace {

constexpr OpIndex kNoOp = planner::kNoOp;
constexpr std::uint32_t kCatchUpOps = 8;  // How far ahead missing inputs are fetched.
constexpr std::uint32_t kFarAway = 4;     // Periods: the next use of what stays idle.

}  // namespace

void PlanAdvice::enter(const LearnedPlan& plan, OpIndex op, bool is_catching_up, Advice& advice) {
  plan_ = &plan;
  const std::vector<bool>& is_replay = rewritten().is_replay;
  const auto last = std::find(is_replay.rbegin(), is_replay.rend(), true);
  last_replay_ = static_cast<OpIndex>(is_replay.rend() - last) - 1;  // kNoOp without any.
  shared_births_.clear();
  shared_cursor_ = 0;
  const auto& values = plan_tape().values;
  for (ValueIndex i = 0; i < values.size(); ++i) {
    if (!values[i].is_shared || values[i].birth == kCarriedIn) continue;
    shared_births_.push_back(i);
    if (values[i].birth < op) ++shared_cursor_;
  }
  bind_live(op);
  advise_next_uses(op, advice);
  advise_pending_transfers(op, advice);
  if (is_catching_up) catch_up_until_ = clock_ + plan.sequence.size();
}

// --- Bindings ---------------------------------------------------------------------------------

/// Finds the storages of all values that live right before `op`: the very storages of the recorded
/// step where they still live, else those that were born in the same place, oldest first.
void PlanAdvice::bind_live(OpIndex op) {
  const auto& values = plan_tape().values;
  bound_.assign(values.size(), {});
  live_.clear();
  wanted_.clear();
  is_marked_.assign(is_marked_.size(), false);
  for (ValueIndex i = 0; i < values.size(); ++i) {
    const bool is_born = values[i].birth == kCarriedIn || values[i].birth < op;
    if (!is_born || values[i].death < op) continue;
    const profile::ValueOrigin& origin = plan_->step.origins[i];
    if (recorder_.is_live(origin.range, origin.serial)) {
      bind(i, origin.range);
      if (is_marked_.size() <= origin.range) is_marked_.resize(std::size_t{origin.range} * 2 + 1);
      is_marked_[origin.range] = true;
    } else {
      wanted_.push_back({origin.birth_key, origin.serial, i});
    }
  }
  if (!wanted_.empty()) bind_by_birth();
}

void PlanAdvice::bind_by_birth() {
  for (const std::uint32_t range : recorder_.live_ranges()) {
    if (range < is_marked_.size() && is_marked_[range]) continue;
    const auto& known = recorder_.range(range);
    live_.push_back({known.birth_key, known.serial, range});
  }
  std::sort(live_.begin(), live_.end());
  std::sort(wanted_.begin(), wanted_.end());
  std::size_t next = 0;
  for (const Identity& value : wanted_) {
    while (next < live_.size() && live_[next].birth_key < value.birth_key) ++next;
    if (next == live_.size()) return;
    if (live_[next].birth_key == value.birth_key) bind(value.index, live_[next++].index);
  }
}

void PlanAdvice::begin_anew() {
  shared_cursor_ = 0;
  previously_bound_.swap(bound_);
  bound_.assign(previously_bound_.size(), {});
  const auto& values = plan_tape().values;
  for (ValueIndex i = 0; i < values.size(); ++i) {
    if (values[i].becomes != kNoValue) bound_[values[i].becomes] = previously_bound_[i];
  }
}

/// Whatever lies on them, one that is born is the next one in age.
OpClock PlanAdvice::bind_shared_birth(std::uint32_t range) {
  if (shared_cursor_ == shared_births_.size()) return kUnknownUse;
  const ValueIndex value = shared_births_[shared_cursor_++];
  bind(value, range);
  return moment(plan_->plan.swaps.birth_distance[value]);
}

OpClock PlanAdvice::bind_birth(OpIndex op, std::uint32_t range) {
  if (recorder_.range(range).is_shared) return bind_shared_birth(range);
  const planner::PerOp& births = plan_->plan.swaps.births;
  const std::uint32_t pages = recorder_.range(range).pages;
  for (std::uint32_t i = birth_cursor_; i < births.first[plan_->at[op] + 1]; ++i) {
    const ValueIndex value = births.entries[i];
    if (rewritten().tape.values[value].pages != pages) continue;
    birth_cursor_ = i + 1;
    bind(rewritten().value_of[value], range);
    return moment(plan_->plan.swaps.birth_distance[value]);
  }
  return kUnknownUse;
}

// --- Advice -----------------------------------------------------------------------------------

OpClock PlanAdvice::moment(std::uint32_t distance) const {
  if (distance == planner::kDiesUnused) return kNeverUsed;
  if (distance == planner::kStaysUnused)
    return clock_ + OpClock{kFarAway} * rewritten().tape.ops.size();
  return clock_ + distance;
}

void PlanAdvice::begin_op(OpIndex op, std::span<const std::uint32_t> used, Advice& advice) {
  const TapeOp& entry = plan_tape().ops[op];
  const std::size_t count = std::min<std::size_t>(entry.use_count, used.size());
  for (std::size_t i = 0; i < count; ++i)
    bind(plan_tape().uses[entry.first_use + i].value, used[i]);
  const OpIndex place = plan_->at[op];
  birth_cursor_ = plan_->plan.swaps.births.first[place];
  if (plan_->is_replayed[op]) advice.record_as = op;
  advise_fetches(place, advice);
  const OpIndex ahead = op + kCatchUpOps;
  if (clock_ >= catch_up_until_ || ahead >= plan_->sequence.size()) return;
  for (const profile::TapeUse& use : touches_of(plan_tape(), ahead)) {
    if (is_bound(use.value)) advice.fetches.push_back({piece_of(use.value)});
  }
}

/// `value` is the one of the swap that leaves, as it is bound now.
Advice::WriteOut PlanAdvice::write_out(ValueIndex value, const PlannedSwap& swap) const {
  Advice::WriteOut out{piece_of(value), swap.pages};
  if (has_tiers_) out.far_pages = swap.far_pages;
  return out;
}

/// What starts before an operator of the plan, one that runs again included.
void PlanAdvice::advise_fetches(OpIndex place, Advice& advice) {
  const planner::SwapPlan& plan = plan_->plan.swaps;
  for (const std::uint32_t i : plan.fetches.of(place)) {
    const PlannedSwap& swap = plan.swaps[i];
    const ValueIndex value = rewritten().value_of[swap.fetch_value];
    if (is_bound(value)) advice.fetches.push_back({piece_of(value), swap.keeps_copy});
  }
  advice.reserve_pages = plan.reserve_pages[place];
}

/// What starts after an operator of the plan, one that runs again included.
void PlanAdvice::advise_leaving(OpIndex place, Advice& advice) {
  const planner::SwapPlan& plan = plan_->plan.swaps;
  for (const std::uint32_t i : plan.write_outs.of(place)) {
    const PlannedSwap& swap = plan.swaps[i];
    const ValueIndex value = rewritten().value_of[swap.value];
    if (is_bound(value)) advice.write_outs.push_back(write_out(value, swap));
  }
  for (const ValueIndex value : plan_->drops.of(place)) {
    if (is_bound(value)) advice.drops.push_back(piece_of(value));
  }
}

/// Of those that the plan's operator touches as well. What it did not foresee keeps its moment.
void PlanAdvice::advise_next_uses_of_shared(OpIndex op, std::span<const std::uint32_t> shared,
                                            Advice& advice) const {
  const TapeOp& entry = rewritten().tape.ops[plan_->at[op]];
  std::uint32_t use = entry.first_use + entry.use_count;
  for (const profile::TapeUse& planned : touches_of(plan_tape(), op).subspan(entry.use_count)) {
    const std::uint32_t distance = plan_->plan.swaps.use_distance[use++];
    if (!is_bound(planned.value)) continue;
    const PieceId page = piece_of(planned.value);
    if (std::find(shared.begin(), shared.end(), page.value()) != shared.end())
      advice.next_uses.push_back({page, moment(distance)});
  }
}

void PlanAdvice::end_op(OpIndex op, std::span<const std::uint32_t> used,
                        std::span<const std::uint32_t> shared, Advice& advice) {
  const OpIndex place = plan_->at[op];
  const TapeOp& entry = rewritten().tape.ops[place];
  const planner::SwapPlan& plan = plan_->plan.swaps;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!recorder_.is_live(used[i])) continue;
    const OpClock at =
        i < entry.use_count ? moment(plan.use_distance[entry.first_use + i]) : kUnknownUse;
    advice.next_uses.push_back({PieceId(used[i]), at});
  }
  advise_next_uses_of_shared(op, shared, advice);
  for (const std::uint32_t range : recorder_.born_in_op())
    advice.next_uses.push_back({PieceId(range), bind_birth(op, range)});
  advise_leaving(place, advice);
}

// --- Operators that run again -----------------------------------------------------------------

std::span<const OpIndex> PlanAdvice::replays_before(OpIndex op) {
  due_begin_ = first_place(op);
  return {rewritten().op_of.data() + due_begin_, rewritten().op_of.data() + plan_->at[op]};
}

void PlanAdvice::begin_replay(std::size_t position, Advice& advice) {
  advise_fetches(place_of_replay(position), advice);
}

void PlanAdvice::end_replay(std::size_t position, Advice& advice) {
  const OpIndex place = place_of_replay(position);
  const planner::SwapPlan& plan = plan_->plan.swaps;
  const auto tell = [&](ValueIndex entry_value, std::uint32_t distance) {
    const ValueIndex value = rewritten().value_of[entry_value];
    if (is_bound(value)) advice.next_uses.push_back({piece_of(value), moment(distance)});
  };
  const TapeOp& entry = rewritten().tape.ops[place];
  for (std::uint32_t i = entry.first_use; i < entry.first_use + entry.use_count; ++i)
    tell(rewritten().tape.uses[i].value, plan.use_distance[i]);
  for (const ValueIndex born : plan.births.of(place)) tell(born, plan.birth_distance[born]);
  advise_leaving(place, advice);
  // Records of what the optimizer is about to write would need copies of it.
  if (place == last_replay_) advice.forgets = true;
}

// --- Entering a plan --------------------------------------------------------------------------

/// Tells the next use of every storage that the plan knows, as seen from before operator `from`.
void PlanAdvice::advise_next_uses(OpIndex from, Advice& advice) {
  const profile::StepTape& tape = rewritten().tape;
  const OpIndex first = first_place(from);
  std::vector<bool>& is_told = is_marked_;
  is_told.assign(std::max(is_told.size(), tape.values.size()), false);
  const auto tell = [&](ValueIndex value, OpClock at) {
    const ValueIndex known = rewritten().value_of[value];
    if (!is_told[known] && is_bound(known)) advice.next_uses.push_back({piece_of(known), at});
    is_told[known] = true;
  };
  for (OpIndex op = first; op < tape.ops.size(); ++op) {
    for (const profile::TapeUse& use : touches_of(tape, op)) tell(use.value, clock_ + (op - first));
  }
  const auto rest = static_cast<std::uint32_t>(tape.ops.size() - first);
  for (ValueIndex value = 0; value < tape.values.size(); ++value) {
    OpClock at = kNeverUsed;
    if (tape.values[value].death == kSurvives && tape.values[value].becomes != kNoValue) {
      const std::uint32_t distance = plan_->plan.swaps.birth_distance[tape.values[value].becomes];
      at = moment(distance) + (distance < planner::kStaysUnused ? rest : 0);
    }
    tell(value, at);
  }
}

/// Starts the transfers that the plan would have started before operator `from`: fetches, soonest
/// need first, and write-outs of what should be out by now, latest need first.
void PlanAdvice::advise_pending_transfers(OpIndex from, Advice& advice) {
  const auto op_count = static_cast<std::uint32_t>(rewritten().tape.ops.size());
  const OpIndex first = first_place(from);
  const auto ops_until = [&](OpIndex op) { return (op + op_count - first) % op_count; };
  const auto known = [&](ValueIndex value) { return rewritten().value_of[value]; };
  pending_.clear();
  late_leaves_.clear();
  for (const PlannedSwap& swap : plan_->plan.swaps.swaps) {
    if (swap.fetch == kNoOp) {
      const ValueIndex value = known(swap.value);
      const bool is_idle = rewritten().tape.values[swap.value].death == kSurvives;
      if (is_idle && is_bound(value)) late_leaves_.push_back({kNoOp, write_out(value, swap)});
      continue;
    }
    const std::uint32_t until_needed = ops_until(swap.needed);
    const std::uint32_t fetched_before = (swap.needed + op_count - swap.fetch) % op_count;
    const std::uint32_t left_before = (swap.needed + op_count - swap.leave - 1) % op_count;
    if (until_needed > left_before) continue;
    ValueIndex value = known(swap.needed >= first ? swap.needed_value : swap.fetch_value);
    if (until_needed < fetched_before && is_bound(value))
      pending_.emplace_back(until_needed, Advice::Fetch{piece_of(value), swap.keeps_copy});
    if (until_needed <= fetched_before) continue;
    if (swap.needed < first && swap.fetch < first) value = known(swap.value);
    if (is_bound(value)) late_leaves_.push_back({until_needed, write_out(value, swap)});
  }
  std::stable_sort(pending_.begin(), pending_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [until_needed, fetch] : pending_) advice.fetches.push_back(fetch);
  std::sort(late_leaves_.begin(), late_leaves_.end(), [](const auto& a, const auto& b) {
    return std::tuple(b.first, b.second.piece) < std::tuple(a.first, a.second.piece);
  });
  for (const auto& [until_needed, leave] : late_leaves_) advice.write_outs.push_back(leave);
}

}  // namespace spillway::runtime
