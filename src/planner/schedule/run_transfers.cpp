// What runs beside the compute: copies, messages, reductions.
#include <algorithm>

#include "schedule_run.h"
#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

double count_of(Bytes size) { return static_cast<double>(size.count()); }

}  // namespace

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
  if (is_out && !copy.is_changed) return memory_.change(rank, now_, 0.0, -count_of(size));
  if (!is_out) memory_.change(rank, now_, 0.0, count_of(size));
  copy.is_changed = false;
  ++copy.copies;
  timing_.ranks[rank].host_traffic += size;
  const std::size_t position = ranks_[rank].next;
  const RunLinks::Copy moved = links_.copy(rank, is_out, size, now_);
  timing_.spans[rank][position].start_seconds = moved.start_seconds;
  push(moved.end_seconds, rank, rank, position);
}

void ScheduleRun::send_message(std::uint32_t rank, std::size_t position, const Action& action) {
  const bool is_gradient =
      action.kind == ActionKind::kSendBackward || makes_input_gradient(action.kind);
  if (is_gradient ? action.stage == 0 : action.stage + 1 == schedule_.stages)
    throw PlanError("rank {}: {}: there is no stage to send to", rank, action);
  const std::uint32_t stage = is_gradient ? action.stage - 1 : action.stage + 1;
  const std::uint32_t to = schedule_.rank_of(action.replica, stage);
  const Bytes size = costs_.stages[is_gradient ? stage : action.stage].boundary;
  push(links_.send(rank, to, size, now_), to, rank, position, Moment::kArrival);
}

void ScheduleRun::send_parameters(std::uint32_t rank, const Action& action) {
  const auto& holders = copies_.holders(action.stage);
  if (holders.size() != 2)
    throw PlanError("rank {}: {}: {} ranks hold the stage, not 2", rank, action, holders.size());
  const std::uint32_t to = holders[0] == rank ? holders[1] : holders[0];
  const StageCosts& stage = costs_.stages[action.stage];
  const Bytes size = action.kind == ActionKind::kSendWeights ? stage.weights : stage.gradients;
  push(links_.send(rank, to, size, now_), to, rank, ranks_[rank].next, Moment::kArrival);
}

void ScheduleRun::join_reduction(std::uint32_t rank, const Action& action) {
  const auto& holders = copies_.reducers(action.stage);
  ++parameters(rank, action.stage).reductions;
  if (++joined_[action.stage] < holders.size()) return;
  joined_[action.stage] = 0;
  const RunLinks::Copy sum =
      links_.reduce(holders, schedule_.data_parallel, costs_.stages[action.stage].gradients, now_);
  for (const std::uint32_t holder : holders) push(sum.end_seconds, holder, rank, ranks_[rank].next);
}

}  // namespace spillway::planner
