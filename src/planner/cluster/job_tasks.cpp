#include "job_tasks.h"

#include <algorithm>

namespace spillway::planner {

JobTasks::JobTasks(const Job& job, std::span<const double> slowdowns, std::uint32_t simulated,
                   const MemoryEffects& effects, FlowTable& flows)
    : job_(job),
      schedule_(job.schedule),
      slowdowns_(slowdowns),
      effects_(effects),
      flows_(flows),
      cells_(schedule_.all_micro_batches() * schedule_.stages),
      copies_(schedule_),
      are_streamed_(schedule_.stages, false),
      ranks_(std::size_t{simulated} * schedule_.rank_count()),
      arrivals_(2 * cells_ * simulated, kNoTask),
      stash_copies_(cells_ * simulated, kNoTask),
      parts_out_(swaps_parts(job.stages) ? stash_copies_.size() : 0, kNoTask),
      phases_(schedule_.stages),
      are_phases_known_(schedule_.stages, false) {
  for (const auto& list : schedule_.ranks)
    for (const Action& action : list) {
      has_messages_ |= action.kind == ActionKind::kSendForward;
      has_reductions_ |= action.kind == ActionKind::kReduce;
      if (action.kind == ActionKind::kSwapInWeights) are_streamed_[action.stage] = true;
    }
}

TaskGraph JobTasks::build() && {
  for (repetition_ = 0; repetition_ < job_.repetitions; ++repetition_) {
    for (rank_ = 0; rank_ < ranks_.size(); ++rank_) walk(rank_);
    link_requests();
    std::fill(arrivals_.begin(), arrivals_.end(), kNoTask);
    std::fill(stash_copies_.begin(), stash_copies_.end(), kNoTask);
  }
  graph_.close();
  return std::move(graph_);
}

void JobTasks::walk(std::uint32_t rank) {
  local_ = rank % schedule_.rank_count();
  pipeline_ = rank / schedule_.rank_count();
  ranks_[rank].backward_end = kNoTask;
  next_effect_ = 0;
  const auto& actions = schedule_.ranks[local_];
  for (std::size_t i = 0; i < actions.size(); ++i) {
    effect_ = next_effect(actions[i]);
    if (actions[i].overlaps_next) {
      const MemoryEffect second = next_effect(actions[i + 1]);
      effect_.at_start += second.at_start;
      effect_.at_end += second.at_end;
      compute(actions[i], &actions[i + 1]);
      ++i;
    } else {
      take(actions[i]);
    }
  }
}

MemoryEffect JobTasks::next_effect(const Action& action) {
  const bool is_elsewhere = job_.update == UpdatePlace::kHost && action.kind == ActionKind::kStep;
  if (effects_.actions.empty() || is_elsewhere) return {};
  return effects_.actions[local_][next_effect_++];
}

/// Under a limit, where the action list comes to something that takes memory or starts to leave:
/// what follows it in the action list waits until that has its room.
void JobTasks::pass_gate(const Action& action) {
  if (effects_.actions.empty()) return;
  const TaskId gate = add(TaskKind::kGate, action, 0.0);
  const bool leaves = action.kind == ActionKind::kSwapOut;
  graph_.use_room(gate, {effect_.at_start, 0.0, effect_.waits_for_room, leaves, false});
  ranks_[rank_].compute = gate;
}

void JobTasks::take(const Action& action) {
  switch (action.kind) {
    case ActionKind::kSendForward: return send(action, /*is_gradient=*/false);
    case ActionKind::kSendBackward: return send(action, /*is_gradient=*/true);
    case ActionKind::kSendWeights:
    case ActionKind::kSendGradients: return send_parameters(action);
    case ActionKind::kReceiveForward:
    case ActionKind::kReceiveBackward: return;  // Posted ahead; the compute waits for it.
    case ActionKind::kReceiveWeights: {
      StageOfRank& state = stage_state(action.stage);
      ++state.weights_received;
      state.waits_for_weights = true;
      return pass_gate(action);
    }
    case ActionKind::kReceiveGradients: {
      StageOfRank& state = stage_state(action.stage);
      ++state.gradients_received;
      state.waits_for_gradients = true;
      return;
    }
    case ActionKind::kSwapOut:
    case ActionKind::kSwapIn: return copy_stash(action);
    case ActionKind::kSwapOutWeights:
    case ActionKind::kSwapInWeights: return copy_weights(action);
    case ActionKind::kReduce: return reduce(action);
    case ActionKind::kStep: return step(action);
    default: return compute(action, nullptr);
  }
}

JobTasks::StageOfRank& JobTasks::stage_state(std::uint32_t stage) {
  auto& stages = ranks_[rank_].stages;
  for (StageOfRank& each : stages)
    if (each.stage == stage) return each;
  stages.emplace_back().stage = stage;
  return stages.back();
}

Task JobTasks::task_of(TaskKind kind, const Action& action, double amount,
                       std::uint32_t flow) const {
  Task task;
  task.kind = kind;
  task.repetition = repetition_;
  task.rank = rank_;
  task.flow = flow;
  task.amount = amount;
  task.action = action;
  return task;
}

/// Behind the compute before it in the action list.
TaskId JobTasks::add(TaskKind kind, const Action& action, double amount, std::uint32_t flow) {
  const TaskId id = graph_.add(task_of(kind, action, amount, flow));
  if (ranks_[rank_].compute != kNoTask) graph_.follow(id, ranks_[rank_].compute);
  return id;
}

void JobTasks::compute(const Action& action, const Action* second) {
  const double slowdown = slowdowns_[flows_.device(local_, static_cast<std::uint32_t>(pipeline_))];
  const double seconds = seconds_of(job_.stages[action.stage], action.kind) +
                         (second ? seconds_of(job_.stages[second->stage], second->kind) : 0.0);
  const TaskId before = ranks_[rank_].compute;
  const TaskId task = add(TaskKind::kCompute, action, seconds * slowdown);
  if (!effects_.actions.empty())
    graph_.use_room(task, {effect_.at_start, effect_.at_end, effect_.waits_for_room});
  need_inputs(task, action);
  if (second) need_inputs(task, *second);
  ranks_[rank_].compute = task;
  swap_part(task, action, before);
  if (second) swap_part(task, *second, before);
  if (has_messages_) return;
  deliver(action);
  if (second) deliver(*second);
}

void JobTasks::need_inputs(TaskId task, const Action& action) {
  if (action.kind == ActionKind::kForward && action.stage > 0)
    requests_.push_back({task, 2 * pipeline_cell(action)});
  if (makes_input_gradient(action.kind) && action.stage >= schedule_.untrained_stages &&
      action.stage + 1 < schedule_.stages)
    requests_.push_back({task, 2 * pipeline_cell(action) + 1});
  const TaskId copy = stash_copies_[pipeline_cell(action)];
  if (copy != kNoTask) graph_.follow(task, copy);
  need_stage(task, action.stage);
}

void JobTasks::need_stage(TaskId task, std::uint32_t stage) {
  StageOfRank& state = stage_state(stage);
  for (const TaskId copy : state.copies) graph_.follow(task, copy);
  state.copies.clear();
  if (state.update != kNoTask) graph_.follow(task, state.update);
  state.update = kNoTask;
  if (state.waits_for_weights)
    parameter_requests_.push_back({task, {rank_, stage, false}, state.weights_received});
  state.waits_for_weights = false;
}

/// In action lists without messages, each output leaves as soon as it is made.
void JobTasks::deliver(const Action& action) {
  const bool is_forward = action.kind == ActionKind::kForward;
  if (!is_forward && !makes_input_gradient(action.kind)) return;
  if (is_forward ? action.stage + 1 == schedule_.stages
                 : action.stage <= schedule_.untrained_stages)
    return;
  const std::uint32_t to =
      schedule_.rank_of(action.replica, is_forward ? action.stage + 1 : action.stage - 1);
  if (to != local_) send(action, !is_forward);
}

void JobTasks::send(const Action& action, bool is_gradient) {
  Action at = action;
  is_gradient ? --at.stage : ++at.stage;
  const std::uint32_t to = schedule_.rank_of(action.replica, at.stage);
  const Bytes size = job_.stages[is_gradient ? at.stage : action.stage].boundary;
  arrivals_[2 * pipeline_cell(at) + (is_gradient ? 1 : 0)] = send_to(to, action, size);
}

void JobTasks::send_parameters(const Action& action) {
  const auto& holders = copies_.holders(action.stage);
  const std::uint32_t to = holders[0] == local_ ? holders[1] : holders[0];
  const bool is_gradient = action.kind == ActionKind::kSendGradients;
  const StageCosts& stage = job_.stages[action.stage];
  const TaskId task = send_to(to, action, is_gradient ? stage.gradients : stage.weights);
  const std::uint32_t receiver = rank_ - local_ + to;
  parameters_[{receiver, action.stage, is_gradient}].push_back(task);
}

TaskId JobTasks::send_to(std::uint32_t to, const Action& action, Bytes size) {
  const TaskId task = add(TaskKind::kMessage, action, count_of(size), flows_.message(local_, to));
  auto& channels = ranks_[rank_].channels;
  const auto channel = std::find_if(channels.begin(), channels.end(),
                                    [&](const auto& each) { return each.first == to; });
  if (channel == channels.end()) {
    channels.emplace_back(to, task);
  } else {
    graph_.queue(task, channel->second);
    channel->second = task;
  }
  return task;
}

void JobTasks::copy_stash(const Action& action) {
  const bool is_out = action.kind == ActionKind::kSwapOut;
  pass_gate(action);
  const TaskId task = add(is_out ? TaskKind::kCopyOut : TaskKind::kCopyIn, action,
                          count_of(job_.stages[action.stage].stash),
                          flows_.copy(local_, is_out, job_.swap_target == SwapTarget::kDisk));
  if (is_out && !effects_.actions.empty())
    graph_.use_room(task, {0.0, effect_.at_end, false, false, true});
  TaskId& last = is_out ? ranks_[rank_].out : ranks_[rank_].in;
  if (last != kNoTask) graph_.queue(task, last);
  last = task;
  TaskId& of_stash = stash_copies_[pipeline_cell(action)];
  if (of_stash != kNoTask) graph_.follow(task, of_stash);
  of_stash = task;
}

void JobTasks::copy_weights(const Action& action) {
  const bool is_out = action.kind == ActionKind::kSwapOutWeights;
  StageOfRank& state = stage_state(action.stage);
  const bool is_host_ahead = job_.update == UpdatePlace::kHost && are_streamed_[action.stage];
  pass_gate(action);
  if (is_out && (is_host_ahead || !state.is_changed)) return;  // The host has them already.
  state.is_changed = false;
  const TaskId task = add(is_out ? TaskKind::kCopyOut : TaskKind::kCopyIn, action,
                          count_of(job_.stages[action.stage].weights),
                          flows_.copy(local_, is_out, job_.swap_target == SwapTarget::kDisk));
  if (is_out && !effects_.actions.empty()) graph_.use_room(task, {0.0, effect_.at_end});
  TaskId& last = is_out ? ranks_[rank_].out : ranks_[rank_].in;
  if (last != kNoTask) graph_.queue(task, last);
  last = task;
  if (!is_out && state.update != kNoTask) graph_.follow(task, state.update);
  if (!is_out) state.update = kNoTask;
  state.copies.push_back(task);
}

void JobTasks::link_requests() {
  for (const Request& request : requests_)
    if (arrivals_[request.index] != kNoTask) graph_.follow(request.task, arrivals_[request.index]);
  requests_.clear();
  for (const ParameterRequest& request : parameter_requests_)
    graph_.follow(request.task, parameters_.at(request.key).at(request.count - 1));
  parameter_requests_.clear();
}

}  // namespace spillway::planner
