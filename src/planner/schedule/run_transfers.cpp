// What runs beside the compute: copies, messages, reductions.
#include <algorithm>

#include "schedule_run.h"
#include "spillway/base/error.h"
#include "spillway/schedule/boundary_stages.h"

namespace spillway::planner_schedule {

/// When a compute that has started ends, with what its stage swaps of the stash.
double ScheduleRun::end_with_parts(std::uint32_t rank, const Action& action) {
  Rank& state = ranks_[rank];
  const Bytes size = costs_.stages[action.stage].swapped;
  if (size == Bytes(0)) return state.computed;
  if (action.kind == ActionKind::kForward) {
    const Transfer out = links_.copy(rank, /*is_out=*/true, size, now_, ScheduleLinks::kNone);
    parts_out_[cell(rank, action)] = out.id;
    state.part_out = out.end_seconds;
    state.part_out_since = now_;
    // A forward that is slower than its copy holds nobody up.
    if (out.end_seconds > state.computed) await(out, rank, rank, state.next, Moment::kPartOut);
    timing_.ranks[rank].host_traffic += size;
  } else if (schedule::makes_input_gradient(action.kind)) {
    if (!state.has_part_in)
      ask_part_in(rank, state.next, state.backward_end < 0.0 ? state.before : state.backward_end);
    return std::max(state.computed, state.part_in);
  }
  return state.computed;
}

void ScheduleRun::ask_part_in(std::uint32_t rank, std::size_t position, double since) {
  Rank& state = ranks_[rank];
  const Action& action = (*state.actions)[position];
  const Bytes size = costs_.stages[action.stage].swapped;
  const Transfer in =
      links_.copy(rank, /*is_out=*/false, size, since, parts_out_[cell(rank, action)]);
  state.has_part_in = true;
  state.part_in = in.end_seconds;
  state.part_in_since = since;
  // Copies in keep the order of the list, and none is asked for twice.
  state.ahead = position + 1;
  if (!is_known(in.end_seconds)) await(in, rank, rank, position, Moment::kPartIn);
  timing_.ranks[rank].host_traffic += size;
}

/// What swaps in for the next backward starts before it does, which links that do not know ends
/// have to be told in time. Copies in pass the link in the order of the action list.
void ScheduleRun::ask_part_in_ahead(std::uint32_t rank) {
  Rank& state = ranks_[rank];
  for (; !state.has_part_in && state.ahead < state.actions->size(); ++state.ahead) {
    const Action& action = (*state.actions)[state.ahead];
    const bool is_copy =
        action.kind == ActionKind::kSwapIn || action.kind == ActionKind::kSwapInWeights;
    // That one is started by its own action, and the link carries it first.
    if (is_copy && state.ahead >= state.next) return;
    if (!schedule::makes_input_gradient(action.kind) ||
        costs_.stages[action.stage].swapped == Bytes(0))
      continue;
    const bool is_out = parts_out_[cell(rank, action)] != ScheduleLinks::kNone;
    if (!is_out || (state.backward_end < 0.0 && !is_compute_before_over(state, state.ahead)))
      return;
    return ask_part_in(rank, state.ahead, now_);
  }
}

/// Of two that run as one, the compute before both.
bool ScheduleRun::is_compute_before_over(const Rank& state, std::size_t position) const {
  const auto& actions = *state.actions;
  if (position > 0 && actions[position - 1].overlaps_next) --position;
  while (position > 0 && !schedule::is_compute(actions[position - 1].kind)) --position;
  return position == 0 || position < state.next || (position == state.next && !state.is_computing);
}

void ScheduleRun::end_part(const Event& event) {
  if (links_.knows_ends()) return;  // Somebody may go on.
  Rank& state = ranks_[event.rank];
  const bool is_out = event.moment == Moment::kPartOut;
  (is_out ? state.part_out : state.part_in) = now_;
  if (event.rank < timing_.spans.size())
    parts_.push_back(
        {event.rank, event.position, is_out ? state.part_out_since : state.part_in_since, now_});
  if (!is_out && state.is_computing && state.next == event.position + 1)
    end_at(event.rank, event.position, std::max(now_, state.computed));
}

void ScheduleRun::start_copy(std::uint32_t rank, const Action& action) {
  const bool is_out = action.kind == ActionKind::kSwapOut;
  const std::size_t position = ranks_[rank].next;
  const Bytes size = costs_.stages[action.stage].stash;
  // Of one stash a copy starts when the one before is over, whichever way it goes.
  Id& last = copies_of_[cell(rank, action)];
  const Transfer copy = links_.copy(rank, is_out, size, now_, last);
  last = copy.id;
  copied_until_[cell(rank, action)] = copy.end_seconds;
  // Whoever lacks room waits only while copies out are under way, which will make some.
  if (is_out) ++ranks_[rank].swap_outs;
  timing_.ranks[rank].host_traffic += size;
  if (copy.start_seconds != kUnknown) span(rank, position).start_seconds = copy.start_seconds;
  if (!is_out && !costs_.memory) {  // Else its room is reserved, lest something else takes it.
    if (copy.start_seconds != kUnknown)
      push(copy.start_seconds, rank, rank, position, Moment::kRoom);
    else
      memory_.change(rank, now_, 1.0, stash_bytes(action));
  }
  await(copy, rank, rank, position);
}

void ScheduleRun::start_weight_copy(std::uint32_t rank, const Action& action) {
  const bool is_out = action.kind == ActionKind::kSwapOutWeights;
  const Bytes size = costs_.stages[action.stage].weights;
  Parameters& copy = parameters(rank, action.stage);
  // A list that moves what is not there would give wrong bytes from here on.
  if (copy.is_resident != is_out)
    throw PlanError("rank {}: {}: its weights are {}", rank, action,
                    is_out ? "away already" : "there already");
  copy.is_resident = !is_out;
  // An unchanged copy is on the host already: it is freed, and nothing moves.
  const bool is_on_host = !copy.is_changed || options_.updates_on_hosts;
  if (is_out && is_on_host) return memory_.change_weights(rank, now_, -count_of(size));
  if (!is_out) memory_.change_weights(rank, now_, count_of(size));
  copy.is_changed = false;
  ++copy.copies;
  timing_.ranks[rank].host_traffic += size;
  const std::size_t position = ranks_[rank].next;
  const bool waits_for_update = !is_out && options_.updates_on_hosts;
  const Transfer moved =
      links_.copy(rank, is_out, size, now_, waits_for_update ? copy.sum : ScheduleLinks::kNone);
  if (moved.start_seconds != kUnknown) span(rank, position).start_seconds = moved.start_seconds;
  await(moved, rank, rank, position);
}

void ScheduleRun::end_copy(const Event& event, const Action& action) {
  const std::uint32_t rank = event.rank;
  if (action.kind == ActionKind::kSwapOutWeights || action.kind == ActionKind::kSwapInWeights) {
    --parameters(rank, action.stage).copies;
    if (action.kind == ActionKind::kSwapOutWeights)
      memory_.change_weights(rank, now_, -count_of(costs_.stages[action.stage].weights));
    return;
  }
  const std::size_t at = cell(rank, action);
  if (copies_of_[at] == event.transfer) copied_until_[at] = now_;
  if (action.kind == ActionKind::kSwapIn) return;
  --ranks_[rank].swap_outs;
  memory_.change(rank, now_, -1.0, -stash_bytes(action));
}

void ScheduleRun::send_message(std::uint32_t rank, std::size_t position, const Action& action) {
  const auto stage = schedule::output_stage(schedule_, action);
  if (!stage) throw PlanError("rank {}: {}: there is no stage to send to", rank, action);
  const std::uint32_t to = ranks_[rank].first + schedule_.rank_of(action.replica, *stage);
  // Each way, a boundary is that of the stage before it.
  const Bytes size = costs_.stages[std::min(*stage, action.stage)].boundary;
  await(links_.send(rank, to, size, now_), to, rank, position, Moment::kArrival);
}

void ScheduleRun::send_parameters(std::uint32_t rank, const Action& action) {
  const auto& holders = copies_.holders(action.stage);
  if (holders.size() != 2)
    throw PlanError("rank {}: {}: ranks that hold the stage are {}, not 2", rank, action,
                    holders.size());
  if (action.kind == ActionKind::kSendWeights && !parameters(rank, action.stage).is_resident)
    throw PlanError("rank {}: {}: its weights are away", rank, action);
  const std::uint32_t first = ranks_[rank].first;
  const std::uint32_t to = first + (first + holders[0] == rank ? holders[1] : holders[0]);
  const StageCosts& stage = costs_.stages[action.stage];
  const Bytes size = action.kind == ActionKind::kSendWeights ? stage.weights : stage.gradients;
  await(links_.send(rank, to, size, now_), to, rank, ranks_[rank].next, Moment::kArrival);
}

/// Posted ahead; the compute waits for what it is to get.
void ScheduleRun::post_receive(std::uint32_t rank, std::size_t position, const Action& action) {
  const bool is_gradient = action.kind == ActionKind::kReceiveBackward;
  receives_[2 * cell(rank, action) + (is_gradient ? 1 : 0)] = position;
}

void ScheduleRun::arrive(const Event& event, const Action& action) {
  if (schedule::is_send(action.kind)) span(event.cause_rank, event.position).end_seconds = now_;
  if (action.kind == ActionKind::kSendWeights)
    return arrive(event.rank, parameters(event.rank, action.stage).weights);
  if (action.kind == ActionKind::kSendGradients)
    return arrive(event.rank, parameters(event.rank, action.stage).gradients);
  const bool is_gradient =
      action.kind != ActionKind::kForward && action.kind != ActionKind::kSendForward;
  Action at = action;
  at.stage = *schedule::output_stage(schedule_, action);
  arrival(event.rank, at, is_gradient).arrived = now_;
  if (receives_.empty()) return;
  const std::size_t posted = receives_[2 * cell(event.rank, at) + (is_gradient ? 1 : 0)];
  if (posted != kNotPosted) span(event.rank, posted).end_seconds = now_;
}

void ScheduleRun::arrive(std::uint32_t rank, Mail& mail) {
  if (mail.arrived < mail.receives.size())
    span(rank, mail.receives[mail.arrived]).end_seconds = now_;
  ++mail.arrived;
}

void ScheduleRun::join_reduction(std::uint32_t rank, const Action& action) {
  Parameters& copy = parameters(rank, action.stage);
  if (!copies_.is_reducer(copies_.at(rank - ranks_[rank].first, action.stage)))
    throw PlanError("rank {}: {}: other copies of its stage are stepped, this one is not", rank,
                    action);
  if (copy.reductions > 0)
    throw PlanError("rank {}: {}: its stage is being reduced already", rank, action);
  ++copy.reductions;
  std::vector<Join>& joined = joined_[action.stage];
  joined.push_back({rank, ranks_[rank].next});
  // Links put sums in the order in which each rank comes to them.
  copy.sum = links_.join(rank, action.stage);
  const auto& reducers = copies_.reducers(action.stage);
  // A sum needs all of its terms.
  if (joined.size() == reducers.size() * options_.pipelines)
    begin_reduction(links_.sum(action.stage, reducers, now_), joined);
}

/// All of its ranks have come.
void ScheduleRun::begin_reduction(const Transfer& sum, std::vector<Join>& joined) {
  const bool has_end = is_known(sum.end_seconds);
  for (const Join& join : joined) {
    span(join.rank, join.position).start_seconds = has_end ? sum.start_seconds : now_;
    if (has_end) push(sum.end_seconds, join.rank, join.rank, join.position);
    if (links_.knows_ends()) continue;
    const Action& action = (*ranks_[join.rank].actions)[join.position];
    parameters(join.rank, action.stage).summed_since = now_;
  }
  // One event stands for all: links tell the end of a sum once, and `end_transfer` tells each rank.
  const Join first = joined.front();
  if (has_end)
    joined.clear();
  else
    await(sum, first.rank, first.rank, first.position);
}

void ScheduleRun::end_reduction(std::uint32_t rank, const Action& action) {
  Parameters& copy = parameters(rank, action.stage);
  --copy.reductions;
  // Waits for it count as communication from then back.
  if (options_.updates_on_hosts) copy.summed = now_;
}

}  // namespace spillway::planner_schedule
