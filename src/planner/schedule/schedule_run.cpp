#include "schedule_run.h"

#include <algorithm>

#include "parameter_places.h"
#include "spillway/base/error.h"
#include "spillway/schedule/boundary_stages.h"

namespace spillway::planner {
namespace {

bool is_weight_copy(ActionKind kind) {
  return kind == ActionKind::kSwapOutWeights || kind == ActionKind::kSwapInWeights;
}

}  // namespace

ScheduleRun::ScheduleRun(const Schedule& schedule, const ScheduleCosts& costs)
    : schedule_(schedule),
      costs_(costs),
      copies_(schedule),
      walk_(schedule, costs.shares),
      memory_(schedule.ranks.size()),
      links_(costs, schedule.ranks.size()),
      ranks_(schedule.ranks.size()),
      parameters_(copies_.size()),
      arrivals_(2 * walk_.cell_count()),
      copied_until_(walk_.cell_count(), 0.0),
      part_out_(swaps_parts(costs.stages) ? walk_.cell_count() : 0, 0.0),
      joined_(schedule.stages) {
  timing_.ranks.resize(schedule.ranks.size());
  bool has_receives = false;
  for (const auto& actions : schedule.ranks) {
    timing_.spans.emplace_back(actions.size());
    for (const Action& action : actions) {
      has_messages_ |= action.kind == ActionKind::kSendForward;
      has_receives |= is_receive(action.kind);
    }
  }
  if (has_receives) receives_.resize(arrivals_.size(), kNotPosted);
  const ParameterPlaces places(schedule, copies_, costs.stages);
  for (std::uint32_t copy = 0; copy < copies_.size(); ++copy)
    parameters_[copy].is_resident = places.is_resident[copy];
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
    memory_.place(rank,
                  {places.bytes[rank], places.gradients[rank], places.optimizer_states[rank]});
}

ScheduleTiming ScheduleRun::run() && {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) advance(rank);
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.seconds;
    timing_.step_seconds = std::max(timing_.step_seconds, now_);
    handle(event);
    advance(event.rank);
  }
  fail_where_it_stalls();
  double busy = 0.0;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    RankTiming& timing = timing_.ranks[rank];
    memory_.report(rank, timing);
    busy += timing.busy_seconds;
    timing_.period_seconds =
        std::max(timing_.period_seconds, timing.last_end_seconds - timing.first_start_seconds);
  }
  const double all = timing_.step_seconds * static_cast<double>(ranks_.size());
  timing_.bubble = all > 0.0 ? 1.0 - busy / all : 0.0;
  return std::move(timing_);
}

void ScheduleRun::fail_where_it_stalls() const {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_[rank].next < schedule_.ranks[rank].size())
      throw PlanError("rank {} waits for ever at {}", rank,
                      schedule_.ranks[rank][ranks_[rank].next]);
}

void ScheduleRun::push(double seconds, std::uint32_t rank, std::uint32_t cause_rank,
                       std::size_t position, Moment moment) {
  events_.push({seconds, event_count_++, rank, cause_rank, position, moment});
}

ScheduleRun::Arrival& ScheduleRun::arrival(const Action& of, bool is_gradient) {
  return arrivals_[2 * walk_.cell(of) + (is_gradient ? 1 : 0)];
}

/// What the stage before or behind must have sent; null where the model begins or ends.
ScheduleRun::Arrival* ScheduleRun::input_of(const Action& action) {
  if (!input_stage(schedule_, action)) return nullptr;
  return &arrival(action, /*is_gradient=*/action.kind != ActionKind::kForward);
}

/// Of the next action of a rank, and of the one that runs as one with it, what came last.
const ScheduleRun::Arrival* ScheduleRun::last_input_of(std::uint32_t rank, const Action& action) {
  const Arrival* input = input_of(action);
  if (!action.overlaps_next) return input;
  const Arrival* second = input_of(schedule_.ranks[rank][ranks_[rank].next + 1]);
  return !input || (second && second->arrived > input->arrived) ? second : input;
}

double ScheduleRun::stash_bytes(const Action& action) const {
  return count_of(costs_.stages[action.stage].stash);
}

void ScheduleRun::advance(std::uint32_t rank) {
  Rank& state = ranks_[rank];
  const auto& actions = schedule_.ranks[rank];
  while (!state.is_computing && state.next < actions.size() &&
         can_start(rank, actions[state.next])) {
    const Action& action = actions[state.next];
    start(rank, action);
    ++state.next;
  }
}

bool ScheduleRun::has_room(std::uint32_t rank, const Action& action) const {
  if (!costs_.memory || ranks_[rank].swap_outs == 0) return true;
  return memory_.bytes(rank) + walk_.taken_by(action) * stash_bytes(action) <=
         count_of(*costs_.memory);
}

bool ScheduleRun::can_start(std::uint32_t rank, const Action& action) {
  if (action.kind == ActionKind::kStep || action.kind == ActionKind::kReduce) {
    const Parameters& copy = parameters(rank, action.stage);
    if (action.kind == ActionKind::kStep && !copy.is_resident)
      throw PlanError("rank {}: {}: its weights are away", rank, action);
    return copy.gradients.is_there() &&
           (action.kind == ActionKind::kReduce || (copy.reductions == 0 && copy.copies == 0));
  }
  if (action.kind == ActionKind::kSwapIn) return has_room(rank, action);
  if (!is_compute(action.kind)) return true;
  const Arrival* input = input_of(action);
  if (input && input->arrived < 0.0) return false;
  const bool leaves_parts =
      action.kind == ActionKind::kForward && costs_.stages[action.stage].swapped > Bytes(0);
  if (leaves_parts && ranks_[rank].part_out > now_) return false;
  const Parameters& copy = parameters(rank, action.stage);
  if (!copy.is_resident) throw PlanError("rank {}: {}: its weights are away", rank, action);
  return copy.weights.is_there() && copy.copies == 0 && copied_until_[walk_.cell(action)] <= now_ &&
         has_room(rank, action) && (!action.overlaps_next || can_start_second(rank, action));
}

/// Two that run as one start when both can.
bool ScheduleRun::can_start_second(std::uint32_t rank, const Action& first) {
  const std::size_t second = ranks_[rank].next + 1;
  if (second == schedule_.ranks[rank].size() || first.kind != ActionKind::kForward ||
      schedule_.ranks[rank][second].kind != ActionKind::kBackward)
    throw PlanError("rank {}: {}: the backward that runs as one with it does not follow", rank,
                    first);
  return can_start(rank, schedule_.ranks[rank][second]);
}

/// The action is the next one of its rank's action list.
void ScheduleRun::start(std::uint32_t rank, const Action& action) {
  const std::size_t position = ranks_[rank].next;
  ActionSpan& span = timing_.spans[rank][position];
  span.start_seconds = span.end_seconds = now_;
  span.start_order = span.end_order = order_++;
  const StashEffect effect = walk_.apply(action);
  if (effect.problem) throw PlanError("rank {}: {}: {}", rank, action, effect.problem);
  const bool takes_later = action.kind == ActionKind::kSwapIn && !costs_.memory;
  if (effect.taken != 0.0 && !takes_later)
    memory_.change(rank, now_, effect.taken, effect.taken * stash_bytes(action));
  switch (action.kind) {
    case ActionKind::kSendForward:
    case ActionKind::kSendBackward: return send_message(rank, position, action);
    case ActionKind::kSendWeights:
    case ActionKind::kSendGradients: return send_parameters(rank, action);
    case ActionKind::kSwapOut:
    case ActionKind::kSwapIn: return start_copy(rank, action);
    case ActionKind::kSwapOutWeights:
    case ActionKind::kSwapInWeights: return start_weight_copy(rank, action);
    case ActionKind::kReduce: return join_reduction(rank, action);
    case ActionKind::kReceiveForward:
    case ActionKind::kReceiveBackward: return post_receive(position, action);
    case ActionKind::kReceiveGradients:
      return parameters(rank, action.stage).gradients.receives.push_back(position);
    case ActionKind::kReceiveWeights: {
      Parameters& copy = parameters(rank, action.stage);
      copy.weights.receives.push_back(position);
      if (!copy.is_resident)
        memory_.change_weights(rank, now_, count_of(costs_.stages[action.stage].weights));
      copy.is_resident = true;
      return;
    }
    default: return start_compute(rank, action, effect);
  }
}

void ScheduleRun::attribute_wait(std::uint32_t rank, const Action& action) {
  RankTiming& timing = timing_.ranks[rank];
  double since = ranks_[rank].free_since;
  if (action.kind == ActionKind::kStep) {
    timing.exposed_communication_seconds += now_ - since;
    return;
  }
  if (const Arrival* input = last_input_of(rank, action)) {
    timing.exposed_communication_seconds +=
        std::max(0.0, input->arrived - std::max(since, input->sent));
    since = std::max(since, input->arrived);
  }
  const bool is_copied = copies_.holders(action.stage).size() == 1 ||
                         parameters(rank, action.stage).weights.receives.empty();
  (is_copied ? timing.exposed_swap_seconds : timing.exposed_communication_seconds) += now_ - since;
}

void ScheduleRun::start_compute(std::uint32_t rank, const Action& action,
                                const StashEffect& effect) {
  Rank& state = ranks_[rank];
  attribute_wait(rank, action);
  const double seconds = seconds_of(costs_.stages[action.stage], action.kind);
  const bool is_second = state.next > 0 && schedule_.ranks[rank][state.next - 1].overlaps_next;
  if (!is_second) state.before = state.free_since;
  const double end = end_with_parts(rank, action, now_ + seconds);
  timing_.ranks[rank].busy_seconds += seconds;
  timing_.ranks[rank].exposed_swap_seconds += end - (now_ + seconds);
  if (!state.has_computed) timing_.ranks[rank].first_start_seconds = now_;
  state.has_computed = true;
  state.is_computing = true;
  state.returned = effect.returned;
  if (action.kind == ActionKind::kStep)
    memory_.change_update(rank, now_, count_of(costs_.stages[action.stage].update_peak));
  push(end, rank, rank, state.next);
}

void ScheduleRun::handle(const Event& event) {
  const Action& action = schedule_.ranks[event.cause_rank][event.position];
  if (event.moment == Moment::kArrival) return arrive(event, action);
  if (event.moment == Moment::kPartOut) return;  // Somebody may go on.
  if (event.moment == Moment::kRoom)
    return memory_.change(event.rank, now_, 1.0, stash_bytes(action));
  timing_.ranks[event.rank].last_end_seconds = now_;
  timing_.spans[event.cause_rank][event.position].end_seconds = now_;
  if (action.kind == ActionKind::kReduce)
    --parameters(event.rank, action.stage).reductions;
  else if (is_compute(action.kind))
    end_compute(event.rank, event.position, action);
  else
    end_copy(event.rank, action);
}

void ScheduleRun::end_compute(std::uint32_t rank, std::size_t position, const Action& action) {
  Rank& state = ranks_[rank];
  state.is_computing = false;
  state.free_since = now_;
  timing_.spans[rank][position].end_order = order_++;
  if (state.returned != 0.0)
    memory_.change(rank, now_, -state.returned, -state.returned * stash_bytes(action));
  if (action.kind == ActionKind::kStep) {
    memory_.change_update(rank, now_, -count_of(costs_.stages[action.stage].update_peak));
    parameters(rank, action.stage).is_changed = true;
    return;
  }
  // What runs as one delivers at its end.
  if (action.overlaps_next) return;
  if (position > 0 && schedule_.ranks[rank][position - 1].overlaps_next)
    deliver(rank, position - 1);
  deliver(rank, position);
}

/// The output of a compute goes to the stage that uses it.
void ScheduleRun::deliver(std::uint32_t rank, std::size_t position) {
  const Action& action = schedule_.ranks[rank][position];
  const bool is_forward = action.kind == ActionKind::kForward;
  const auto stage = output_stage(schedule_, action);
  if (!stage) return;
  Action at = action;
  at.stage = *stage;
  Arrival& output = arrival(at, !is_forward);
  output.sent = now_;
  if (schedule_.rank_of(at.replica, at.stage) == rank)
    output.arrived = now_;
  else if (!has_messages_)
    send_message(rank, position, action);
}

void ScheduleRun::end_copy(std::uint32_t rank, const Action& action) {
  if (is_weight_copy(action.kind)) {
    --parameters(rank, action.stage).copies;
    if (action.kind == ActionKind::kSwapOutWeights)
      memory_.change_weights(rank, now_, -count_of(costs_.stages[action.stage].weights));
  } else if (action.kind == ActionKind::kSwapOut) {
    --ranks_[rank].swap_outs;
    memory_.change(rank, now_, -1.0, -stash_bytes(action));
  }
}

}  // namespace spillway::planner
