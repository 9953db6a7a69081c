#include "spillway/schedule/stash_walk.h"

namespace spillway::schedule {

StashWalk::StashWalk(const Schedule& schedule, const StashShares& shares)
    : schedule_(&schedule),
      shares_(shares),
      states_(std::size_t{schedule.replica_count()} * schedule.stages * schedule.micro_batches,
              State::kAbsent),
      is_recomputed_(states_.size(), false) {
  for (const auto& actions : schedule.ranks)
    for (const Action& action : actions)
      if (action.kind == ActionKind::kRecompute) is_recomputed_[cell(action)] = true;
}

StashEffect StashWalk::move(State& state, State from, State to, StashEffect effect) const {
  if (state == from) {
    state = to;
    return effect;
  }
  const bool wants_stash = from == State::kWhole;
  if (from == State::kAbsent) return {.problem = "it runs a second time"};
  if (state == State::kAbsent) return {.problem = "it comes before its forward"};
  if (wants_stash && state == State::kOut) return {.problem = "its stash is swapped out"};
  if (wants_stash && state == State::kInput) return {.problem = "its stash is not recomputed yet"};
  if (state == State::kDone) return {.problem = "its backward is over"};
  if (wants_stash && state == State::kHalf) return {.problem = "its input gradient is over"};
  if (from == State::kHalf) return {.problem = "it comes before its input gradient"};
  if (from == State::kOut) return {.problem = "its stash is not swapped out"};
  return {.problem = "its stash is whole"};  // Recomputed twice.
}

double StashWalk::taken_by(const Action& action) const {
  switch (action.kind) {
    case ActionKind::kForward: return is_recomputed_[cell(action)] ? shares_.input : 1.0;
    case ActionKind::kRecompute: return 1.0 - shares_.input;
    case ActionKind::kSwapIn: return 1.0;
    default: return 0.0;
  }
}

StashEffect StashWalk::apply(const Action& action) {
  if (!needs_micro_batch(action.kind) || is_send(action.kind) || is_receive(action.kind)) return {};
  State& state = states_[cell(action)];
  const double taken = taken_by(action);
  switch (action.kind) {
    case ActionKind::kForward:
      return move(state, State::kAbsent,
                  is_recomputed_[cell(action)] ? State::kInput : State::kWhole, {.taken = taken});
    case ActionKind::kRecompute: return move(state, State::kInput, State::kWhole, {.taken = taken});
    case ActionKind::kSwapOut: return move(state, State::kWhole, State::kOut, {.returned = 1.0});
    case ActionKind::kSwapIn: return move(state, State::kOut, State::kWhole, {.taken = taken});
    case ActionKind::kBackward: return move(state, State::kWhole, State::kDone, {.returned = 1.0});
    case ActionKind::kInputGradient:
      return move(state, State::kWhole, State::kHalf,
                  {.returned = 1.0 - shares_.after_input_gradient});
    default:
      return move(state, State::kHalf, State::kDone, {.returned = shares_.after_input_gradient});
  }
}

}  // namespace spillway::schedule
