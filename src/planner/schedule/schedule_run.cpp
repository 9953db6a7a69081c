#include "schedule_run.h"

#include <algorithm>

#include "parameter_places.h"
#include "spillway/base/error.h"
#include "spillway/schedule/boundary_stages.h"

namespace spillway::planner_schedule {
ScheduleRun::ScheduleRun(const Schedule& schedule, const Schedule& lists,
                         const ScheduleCosts& costs, ScheduleLinks& links,
                         const RunOptions& options)
    : schedule_(lists),
      costs_(costs),
      links_(links),
      options_(options),
      has_messages_(schedule::has_action(schedule, ActionKind::kSendForward)),
      has_reductions_(schedule::has_action(schedule, ActionKind::kReduce)),
      copies_(schedule),
      walks_(options.pipelines, StashWalk(lists, costs.shares)),
      memory_(schedule.ranks.size() * options.pipelines, options.traced_ranks),
      ranks_(schedule.ranks.size() * options.pipelines),
      parameters_(copies_.size() * options.pipelines),
      arrivals_(2 * walks_.front().cell_count() * options.pipelines),
      copied_until_(arrivals_.size() / 2, 0.0),
      copies_of_(copied_until_.size(), ScheduleLinks::kNone),
      parts_out_(swaps_parts(costs.stages) ? copied_until_.size() : 0, ScheduleLinks::kNone),
      joined_(schedule.stages),
      repetition_ends_(options.repetitions, 0.0) {
  timing_.ranks.resize(ranks_.size());
  const ParameterPlaces places(schedule, copies_, costs.stages);
  for (std::uint32_t copy = 0; copy < parameters_.size(); ++copy)
    parameters_[copy].is_resident = places.is_resident[copy % copies_.size()];
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const std::uint32_t local = rank % schedule.rank_count();
    memory_.place(rank,
                  {places.bytes[local], places.gradients[local], places.optimizer_states[local]});
    Rank& state = ranks_[rank];
    state.actions = &lists.ranks[local];
    state.pipeline = rank / schedule.rank_count();
    state.first = rank - local;
    state.first_copy = state.pipeline * static_cast<std::uint32_t>(copies_.size());
    state.first_cell = state.pipeline * walks_.front().cell_count();
    state.counted_from = schedule.ranks[local].size() * (options.repetitions - 1);
    if (!options.slowdowns.empty()) state.slowdown = options.slowdowns[rank];
    if (rank < options.traced_ranks) timing_.spans.emplace_back(state.actions->size());
  }
  for (const auto& actions : schedule.ranks)
    // That table has a place for each input of each pass: lists without messages do without it.
    for (const Action& action : actions)
      if (schedule::is_receive(action.kind) && receives_.empty())
        receives_.resize(arrivals_.size(), kNotPosted);
}

RunTiming ScheduleRun::run() && {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) advance(rank);
  std::vector<Id> ended;
  while (true) {
    const double next_end = links_.next_end(now_);
    const double next = events_.empty() ? next_end : std::min(events_.top().seconds, next_end);
    if (events_.empty() && next_end == kUnknown) break;
    // Ends of shared links may be rounded to just before now.
    now_ = std::max(now_, next);
    // All of one moment before links are asked again, so that shared ones find new rates once for
    // it.
    while (!events_.empty() && events_.top().seconds <= now_) {
      const Event event = events_.top();
      events_.pop();
      handle(event);
      advance(event.rank);
    }
    ended.clear();
    links_.take_ended(now_, ended);
    for (const Id id : ended) end_transfer(id);
  }
  fail_where_it_stalls();
  report();
  return {std::move(timing_), std::move(parts_), now_, event_count_};
}

void ScheduleRun::report() {
  const std::size_t last = repetition_ends_.size() - 1;
  timing_.step_seconds = last == 0 ? now_ : repetition_ends_[last] - repetition_ends_[last - 1];
  double busy = 0.0;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    RankTiming& timing = timing_.ranks[rank];
    memory_.report(rank, timing);
    busy += timing.busy_seconds;
    // The next action lists may begin on a rank while others are still busy with these.
    timing_.period_seconds =
        std::max(timing_.period_seconds, timing.last_end_seconds - timing.first_start_seconds);
  }
  const double all = timing_.step_seconds * static_cast<double>(ranks_.size());
  timing_.bubble = all > 0.0 ? 1.0 - busy / all : 0.0;
}

void ScheduleRun::fail_where_it_stalls() const {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
    // Without events nothing changes any more, so who waits now waits for ever.
    if (ranks_[rank].next < ranks_[rank].actions->size())
      throw PlanError("rank {} waits for ever at {}", rank,
                      (*ranks_[rank].actions)[ranks_[rank].next]);
  if (awaited_count_ > 0)
    throw PlanError("after {} s nothing goes on, and {} transfers are not over (check the order of "
                    "reductions, and the rates of links)",
                    now_, awaited_count_);
}

void ScheduleRun::push(double seconds, std::uint32_t rank, std::uint32_t cause_rank,
                       std::size_t position, Moment moment, Id transfer) {
  events_.push({seconds, event_count_++, rank, cause_rank, position, moment, transfer});
}

/// The end of a transfer is an event as soon as it is known.
void ScheduleRun::await(const Transfer& transfer, std::uint32_t rank, std::uint32_t cause_rank,
                        std::size_t position, Moment moment) {
  if (is_known(transfer.end_seconds))
    return push(transfer.end_seconds, rank, cause_rank, position, moment);
  // Links number transfers in the order in which they are asked for.
  awaited_.resize(std::max<std::size_t>(awaited_.size(), transfer.id + std::size_t{1}));
  awaited_[transfer.id] = {0.0, 0, rank, cause_rank, position, moment};
  ++awaited_count_;
}

void ScheduleRun::end_transfer(Id id) {
  const Event& of = awaited_[id];
  --awaited_count_;
  const Action& action = (*ranks_[of.cause_rank].actions)[of.position];
  if (of.moment != Moment::kEnd || (action.kind != ActionKind::kReduce && !is_update(action)))
    return push(now_, of.rank, of.cause_rank, of.position, of.moment, id);
  for (const Join& join : joined_[action.stage]) push(now_, join.rank, join.rank, join.position);
  joined_[action.stage].clear();
}

ActionSpan& ScheduleRun::span(std::uint32_t rank, std::size_t position) {
  return rank < timing_.spans.size() ? timing_.spans[rank][position] : untraced_;
}

ScheduleRun::Arrival& ScheduleRun::arrival(std::uint32_t rank, const Action& of, bool is_gradient) {
  return arrivals_[2 * cell(rank, of) + (is_gradient ? 1 : 0)];
}

/// What the stage before or behind must have sent; null where the model begins or ends.
ScheduleRun::Arrival* ScheduleRun::input_of(std::uint32_t rank, const Action& action) {
  if (!schedule::input_stage(schedule_, action)) return nullptr;
  return &arrival(rank, action, /*is_gradient=*/action.kind != ActionKind::kForward);
}

/// Of the next action of a rank, and of the one that runs as one with it, what came last.
const ScheduleRun::Arrival* ScheduleRun::last_input_of(std::uint32_t rank, const Action& action) {
  const Arrival* input = input_of(rank, action);
  if (!action.overlaps_next) return input;
  const Arrival* second = input_of(rank, (*ranks_[rank].actions)[ranks_[rank].next + 1]);
  return !input || (second && second->arrived > input->arrived) ? second : input;
}

double ScheduleRun::stash_bytes(const Action& action) const {
  return count_of(costs_.stages[action.stage].stash);
}

void ScheduleRun::advance(std::uint32_t rank) {
  Rank& state = ranks_[rank];
  const auto& actions = *state.actions;
  while (!state.is_computing && state.next < actions.size() &&
         can_start(rank, actions[state.next])) {
    start(rank, actions[state.next]);
    ++state.next;
  }
  if (!links_.knows_ends() && !parts_out_.empty()) ask_part_in_ahead(rank);
}

bool ScheduleRun::has_room(std::uint32_t rank, const Action& action) const {
  // Without a copy out under way nothing would make room: it goes on, and the peak tells.
  if (!costs_.memory || ranks_[rank].swap_outs == 0) return true;
  return memory_.bytes(rank) + walks_.front().taken_by(action) * stash_bytes(action) <=
         count_of(*costs_.memory);
}

bool ScheduleRun::can_start(std::uint32_t rank, const Action& action) {
  if (action.kind == ActionKind::kStep || action.kind == ActionKind::kReduce) {
    if (is_update(action) && has_reductions_) return true;
    const Parameters& copy = parameters(rank, action.stage);
    const bool is_step = action.kind == ActionKind::kStep;
    // Where hosts update, a step changes what they have, not the copy on the device.
    if (is_step && !is_update(action) && !copy.is_resident)
      throw PlanError("rank {}: {}: its weights are away", rank, action);
    // A sum needs what a borrowed copy sends. A step also needs its sums to be over, and weights
    // that stay where they are.
    return copy.gradients.is_there() && (!is_step || (copy.reductions == 0 && copy.copies == 0));
  }
  if (action.kind == ActionKind::kSwapIn) return has_room(rank, action);
  return !schedule::is_compute(action.kind) || can_compute(rank, action);
}

bool ScheduleRun::can_compute(std::uint32_t rank, const Action& action) {
  const Arrival* input = input_of(rank, action);
  if (input && input->arrived < 0.0) return false;
  const bool leaves_parts =
      action.kind == ActionKind::kForward && costs_.stages[action.stage].swapped > Bytes(0);
  // The pieces of the stash before have the room that its own would take.
  if (leaves_parts && ranks_[rank].part_out > now_) return false;
  const Parameters& copy = parameters(rank, action.stage);
  if (!copy.is_resident) throw PlanError("rank {}: {}: its weights are away", rank, action);
  // Its weights are those of the step before until the hosts have sent them.
  if (options_.updates_on_hosts && copy.reductions > 0) return false;
  return copy.weights.is_there() && copy.copies == 0 && copied_until_[cell(rank, action)] <= now_ &&
         has_room(rank, action) && (!action.overlaps_next || can_start_second(rank, action));
}

/// Two that run as one start when both can.
bool ScheduleRun::can_start_second(std::uint32_t rank, const Action& first) {
  const std::size_t second = ranks_[rank].next + 1;
  const auto& actions = *ranks_[rank].actions;
  if (second == actions.size() || first.kind != ActionKind::kForward ||
      actions[second].kind != ActionKind::kBackward)
    throw PlanError("rank {}: {}: the backward that runs as one with it does not follow", rank,
                    first);
  return can_start(rank, actions[second]);
}

/// The action is the next one of its rank's action list.
void ScheduleRun::start(std::uint32_t rank, const Action& action) {
  const std::size_t position = ranks_[rank].next;
  // Orders tell apart what has the same moment; `with_communication` places messages by them.
  span(rank, position) = {now_, now_, order_, order_};
  ++order_;
  const StashEffect effect = walk(rank).apply(action);
  if (effect.problem) throw PlanError("rank {}: {}: {}", rank, action, effect.problem);
  // A copy in takes its room when it starts on the link, which may be later.
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
    case ActionKind::kReceiveBackward: return post_receive(rank, position, action);
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
    case ActionKind::kStep:
      if (!is_update(action)) return start_compute(rank, action, effect);
      return has_reductions_ ? void() : join_reduction(rank, action);
    default: return start_compute(rank, action, effect);
  }
}

void ScheduleRun::attribute_wait(std::uint32_t rank, const Action& action) {
  RankTiming& timing = timing_.ranks[rank];
  double since = ranks_[rank].free_since;
  if (action.kind == ActionKind::kStep) {
    timing.exposed_communication_seconds +=
        now_ - std::max(since, parameters(rank, action.stage).summed_since);
    return;
  }
  if (const Arrival* input = last_input_of(rank, action)) {
    timing.exposed_communication_seconds +=
        std::max(0.0, input->arrived - std::max(since, input->sent));
    since = std::max(since, input->arrived);
  }
  // Each reason takes what lies behind the end of the one before.
  if (options_.updates_on_hosts) {
    const Parameters& copy = parameters(rank, action.stage);
    timing.exposed_communication_seconds +=
        std::max(0.0, copy.summed - std::max(since, copy.summed_since));
    since = std::max(since, copy.summed);
  }
  // What is left of the wait was for weights or for copies; weights of a single owner come as
  // messages.
  const bool is_copied = copies_.holders(action.stage).size() == 1 ||
                         parameters(rank, action.stage).weights.receives.empty();
  (is_copied ? timing.exposed_swap_seconds : timing.exposed_communication_seconds) += now_ - since;
}

void ScheduleRun::start_compute(std::uint32_t rank, const Action& action,
                                const StashEffect& effect) {
  Rank& state = ranks_[rank];
  const double seconds = seconds_of(costs_.stages[action.stage], action.kind) * state.slowdown;
  if (is_counted(rank, state.next)) {
    attribute_wait(rank, action);
    timing_.ranks[rank].busy_seconds += seconds;
  }
  const bool is_second = state.next > 0 && (*state.actions)[state.next - 1].overlaps_next;
  if (!is_second) state.before = state.free_since;
  if (!state.has_computed) timing_.ranks[rank].first_start_seconds = now_;
  state.has_computed = true;
  state.is_computing = true;
  state.returned = effect.returned;
  state.computed = now_ + seconds;
  const double end = end_with_parts(rank, action);
  if (action.kind == ActionKind::kStep)
    memory_.change_update(rank, now_, count_of(costs_.stages[action.stage].update_peak));
  if (is_known(end)) end_at(rank, state.next, end);
}

/// What it swaps in by itself may keep a compute from ending when it has computed.
void ScheduleRun::end_at(std::uint32_t rank, std::size_t position, double end) {
  if (is_counted(rank, position))
    timing_.ranks[rank].exposed_swap_seconds += end - ranks_[rank].computed;
  push(end, rank, rank, position);
}

void ScheduleRun::handle(const Event& event) {
  const Action& action = (*ranks_[event.cause_rank].actions)[event.position];
  switch (event.moment) {
    case Moment::kArrival: return arrive(event, action);
    case Moment::kPartOut:
    case Moment::kPartIn: return end_part(event);
    case Moment::kRoom: return memory_.change(event.rank, now_, 1.0, stash_bytes(action));
    case Moment::kEnd: break;
  }
  timing_.ranks[event.rank].last_end_seconds = now_;
  span(event.cause_rank, event.position).end_seconds = now_;
  if (action.kind == ActionKind::kReduce || is_update(action))
    end_reduction(event.rank, action);
  else if (schedule::is_compute(action.kind))
    end_compute(event.rank, event.position, action);
  else
    end_copy(event, action);
}

void ScheduleRun::end_compute(std::uint32_t rank, std::size_t position, const Action& action) {
  Rank& state = ranks_[rank];
  state.is_computing = false;
  state.free_since = now_;
  span(rank, position).end_order = order_++;
  if (options_.repetitions > 1)
    // Repetitions stand one behind the other in the list, and are equally long.
    repetition_ends_[position * options_.repetitions / state.actions->size()] = now_;
  if (state.returned != 0.0)
    memory_.change(rank, now_, -state.returned, -state.returned * stash_bytes(action));
  if (action.kind == ActionKind::kStep) {
    memory_.change_update(rank, now_, -count_of(costs_.stages[action.stage].update_peak));
    parameters(rank, action.stage).is_changed = true;
    return;
  }
  if (schedule::makes_input_gradient(action.kind) &&
      costs_.stages[action.stage].swapped > Bytes(0)) {
    state.backward_end = now_;
    state.has_part_in = false;
  }
  // What runs as one delivers at its end.
  if (action.overlaps_next) return;
  if (position > 0 && (*state.actions)[position - 1].overlaps_next) deliver(rank, position - 1);
  deliver(rank, position);
}

/// The output of a compute goes to the stage that uses it.
void ScheduleRun::deliver(std::uint32_t rank, std::size_t position) {
  const Action& action = (*ranks_[rank].actions)[position];
  const bool is_forward = action.kind == ActionKind::kForward;
  const auto stage = schedule::output_stage(schedule_, action);
  if (!stage) return;
  Action at = action;
  at.stage = *stage;
  Arrival& output = arrival(rank, at, !is_forward);
  output.sent = now_;
  // Within a rank nothing is sent; between ranks a send of the list does it, or, in lists without
  // any, this.
  if (ranks_[rank].first + schedule_.rank_of(at.replica, at.stage) == rank)
    output.arrived = now_;
  else if (!has_messages_)
    send_message(rank, position, action);
}

}  // namespace spillway::planner_schedule
