// What runs beside the compute: copies, messages, reductions.
#include <algorithm>

#include "schedule_run.h"
#include "spillway/base/error.h"
#include "spillway/schedule/boundary_stages.h"

namespace spillway::planner {

/// When a compute that would end then does, with what its stage swaps of the stash.
double ScheduleRun::end_with_parts(std::uint32_t rank, const Action& action, double end) {
  const Bytes size = costs_.stages[action.stage].swapped;
  if (size == Bytes(0)) return end;
  Rank& state = ranks_[rank];
  double& out = part_out_[walk_.cell(action)];
  if (action.kind == ActionKind::kForward) {
    out = state.part_out = links_.copy(rank, /*is_out=*/true, size, now_).end_seconds;
    if (out > end) push(out, rank, rank, state.next, Moment::kPartOut);
  } else if (makes_input_gradient(action.kind)) {
    const double since = state.backward_end < 0.0 ? state.before : state.backward_end;
    const double in = links_.copy(rank, /*is_out=*/false, size, std::max(since, out)).end_seconds;
    end = state.backward_end = std::max(end, in);
  } else {
    return end;
  }
  timing_.ranks[rank].host_traffic += size;
  return end;
}

void ScheduleRun::start_copy(std::uint32_t rank, const Action& action) {
  const bool is_out = action.kind == ActionKind::kSwapOut;
  const std::size_t position = ranks_[rank].next;
  const Bytes size = costs_.stages[action.stage].stash;
  double& until = copied_until_[walk_.cell(action)];
  const RunLinks::Copy copy = links_.copy(rank, is_out, size, std::max(now_, until));
  until = copy.end_seconds;
  if (is_out) ++ranks_[rank].swap_outs;
  timing_.ranks[rank].host_traffic += size;
  timing_.spans[rank][position].start_seconds = copy.start_seconds;
  // Under a limit its room is reserved from now on, lest something else takes it before.
  if (!is_out && !costs_.memory) push(copy.start_seconds, rank, rank, position, Moment::kRoom);
  push(copy.end_seconds, rank, rank, position);
}

void ScheduleRun::start_weight_copy(std::uint32_t rank, const Action& action) {
  const bool is_out = action.kind == ActionKind::kSwapOutWeights;
  const Bytes size = costs_.stages[action.stage].weights;
  Parameters& copy = parameters(rank, action.stage);
  if (copy.is_resident != is_out)
    throw PlanError("rank {}: {}: its weights are {}", rank, action,
                    is_out ? "away already" : "there already");
  copy.is_resident = !is_out;
  if (is_out && !copy.is_changed) return memory_.change_weights(rank, now_, -count_of(size));
  if (!is_out) memory_.change_weights(rank, now_, count_of(size));
  copy.is_changed = false;
  ++copy.copies;
  timing_.ranks[rank].host_traffic += size;
  const std::size_t position = ranks_[rank].next;
  const RunLinks::Copy moved = links_.copy(rank, is_out, size, now_);
  timing_.spans[rank][position].start_seconds = moved.start_seconds;
  push(moved.end_seconds, rank, rank, position);
}

void ScheduleRun::send_message(std::uint32_t rank, std::size_t position, const Action& action) {
  const auto stage = output_stage(schedule_, action);
  if (!stage) throw PlanError("rank {}: {}: there is no stage to send to", rank, action);
  const std::uint32_t to = schedule_.rank_of(action.replica, *stage);
  const Bytes size = costs_.stages[std::min(*stage, action.stage)].boundary;
  push(links_.send(rank, to, size, now_), to, rank, position, Moment::kArrival);
}

void ScheduleRun::send_parameters(std::uint32_t rank, const Action& action) {
  const auto& holders = copies_.holders(action.stage);
  if (holders.size() != 2)
    throw PlanError("rank {}: {}: {} ranks hold the stage, not 2", rank, action, holders.size());
  if (action.kind == ActionKind::kSendWeights && !parameters(rank, action.stage).is_resident)
    throw PlanError("rank {}: {}: its weights are away", rank, action);
  const std::uint32_t to = holders[0] == rank ? holders[1] : holders[0];
  const StageCosts& stage = costs_.stages[action.stage];
  const Bytes size = action.kind == ActionKind::kSendWeights ? stage.weights : stage.gradients;
  push(links_.send(rank, to, size, now_), to, rank, ranks_[rank].next, Moment::kArrival);
}

/// Posted ahead; the compute waits for what it is to get.
void ScheduleRun::post_receive(std::size_t position, const Action& action) {
  const bool is_gradient = action.kind == ActionKind::kReceiveBackward;
  receives_[2 * walk_.cell(action) + (is_gradient ? 1 : 0)] = position;
}

void ScheduleRun::arrive(const Event& event, const Action& action) {
  if (is_send(action.kind)) timing_.spans[event.cause_rank][event.position].end_seconds = now_;
  if (action.kind == ActionKind::kSendWeights)
    return arrive(event.rank, parameters(event.rank, action.stage).weights);
  if (action.kind == ActionKind::kSendGradients)
    return arrive(event.rank, parameters(event.rank, action.stage).gradients);
  const bool is_gradient =
      action.kind != ActionKind::kForward && action.kind != ActionKind::kSendForward;
  Action at = action;
  at.stage = *output_stage(schedule_, action);
  arrival(at, is_gradient).arrived = now_;
  if (receives_.empty()) return;
  const std::size_t posted = receives_[2 * walk_.cell(at) + (is_gradient ? 1 : 0)];
  if (posted != kNotPosted) timing_.spans[event.rank][posted].end_seconds = now_;
}

void ScheduleRun::arrive(std::uint32_t rank, Mail& mail) {
  if (mail.arrived < mail.receives.size())
    timing_.spans[rank][mail.receives[mail.arrived]].end_seconds = now_;
  ++mail.arrived;
}

void ScheduleRun::join_reduction(std::uint32_t rank, const Action& action) {
  Parameters& copy = parameters(rank, action.stage);
  if (!copies_.is_reducer(copies_.at(rank, action.stage)))
    throw PlanError("rank {}: {}: other copies of its stage are stepped, this one is not", rank,
                    action);
  if (copy.reductions > 0)
    throw PlanError("rank {}: {}: its stage is being reduced already", rank, action);
  ++copy.reductions;
  std::vector<Join>& joined = joined_[action.stage];
  joined.push_back({rank, ranks_[rank].next});
  const auto& reducers = copies_.reducers(action.stage);
  if (joined.size() < reducers.size()) return;
  const RunLinks::Copy sum =
      links_.reduce(reducers, schedule_.data_parallel, costs_.stages[action.stage].gradients, now_);
  for (const Join& join : joined) {
    timing_.spans[join.rank][join.position].start_seconds = sum.start_seconds;
    push(sum.end_seconds, join.rank, join.rank, join.position);
  }
  joined.clear();
}

}  // namespace spillway::planner
