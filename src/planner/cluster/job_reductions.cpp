// Reductions, steps and updates on the hosts.
#include "job_tasks.h"
#include "update_phases.h"

namespace spillway::planner {

void JobTasks::reduce(const Action& action) {
  const TaskId gate = add(TaskKind::kGate, action, 0.0);
  ranks_[rank_].compute = gate;
  StageOfRank& state = stage_state(action.stage);
  if (state.waits_for_gradients)
    parameter_requests_.push_back({gate, {rank_, action.stage, true}, state.gradients_received});
  state.waits_for_gradients = false;
  join(action, gate);
}

void JobTasks::step(const Action& action) {
  const bool is_on_host = job_.update == UpdatePlace::kHost;
  if (is_on_host && has_reductions_) return;  // The update followed the reduction.
  const double slowdown = slowdowns_[flows_.device(local_, static_cast<std::uint32_t>(pipeline_))];
  const TaskId task = add(is_on_host ? TaskKind::kGate : TaskKind::kCompute, action,
                          is_on_host ? 0.0 : job_.stages[action.stage].step_seconds * slowdown);
  if (!effects_.actions.empty()) graph_.use_room(task, {effect_.at_start, effect_.at_end});
  StageOfRank& state = stage_state(action.stage);
  if (state.waits_for_gradients)
    parameter_requests_.push_back({task, {rank_, action.stage, true}, state.gradients_received});
  state.waits_for_gradients = false;
  if (state.reduction != kNoTask) graph_.follow(task, state.reduction);
  state.reduction = kNoTask;
  need_stage(task, action.stage);
  state.is_changed = true;
  ranks_[rank_].compute = task;
  if (is_on_host) join(action, task);
}

/// A reduction begins when all its members have come to it.
void JobTasks::join(const Action& action, TaskId gate) {
  const std::uint32_t round = stage_state(action.stage).rounds++;
  const Chain& chain = chain_of(action, round);
  if (chain.tasks.empty()) return;
  graph_.follow(chain.tasks.front(), gate);
  auto& lanes = ranks_[rank_].lanes;
  const auto& phases = phases_of(action.stage);
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (lanes.size() <= phases[i].lane) lanes.resize(phases[i].lane + 1, kNoTask);
    TaskId& last = lanes[phases[i].lane];
    const bool is_mine = last != kNoTask && last != chain.tasks[i] &&
                         (i == 0 || last != chain.tasks[i - 1]);  // Or it follows it anyway.
    if (is_mine) graph_.queue(chain.tasks[i], last);
    last = chain.tasks[i];
  }
  StageOfRank& state = stage_state(action.stage);
  (job_.update == UpdatePlace::kHost ? state.update : state.reduction) = chain.tasks.back();
}

JobTasks::Chain& JobTasks::chain_of(const Action& action, std::uint32_t round) {
  const auto [found, is_new] = chains_.try_emplace({action.stage, round});
  if (!is_new) return found->second;
  for (const PhaseKind& phase : phases_of(action.stage)) {
    Task task;
    task.kind = TaskKind::kReduction;
    task.repetition = repetition_;
    task.rank = rank_;
    task.flow = phase.flow;
    task.amount = phase.bytes;
    task.least_seconds = phase.least_seconds;
    task.action = action;
    std::vector<TaskId>& tasks = found->second.tasks;
    if (!tasks.empty()) task.continues = tasks.back();
    const TaskId id = graph_.add(task);
    if (!tasks.empty()) graph_.follow(id, tasks.back());
    tasks.push_back(id);
  }
  return found->second;
}

std::vector<std::uint32_t> JobTasks::member_devices(std::uint32_t stage) const {
  std::vector<std::uint32_t> devices;
  for (std::uint32_t pipeline = 0; pipeline < flows_.pipelines(); ++pipeline)
    for (const std::uint32_t rank : copies_.reducers(stage))
      devices.push_back(flows_.device(rank, pipeline));
  return devices;
}

const std::vector<JobTasks::PhaseKind>& JobTasks::phases_of(std::uint32_t stage) {
  std::vector<PhaseKind>& kinds = phases_[stage];
  if (are_phases_known_[stage]) return kinds;
  are_phases_known_[stage] = true;
  const std::vector<UpdatePhase> phases =
      job_.update == UpdatePlace::kHost
          ? host_update_phases(job_, job_.stages[stage], flows_.links(), member_devices(stage))
          : reduction_phases(job_, job_.stages[stage], flows_.links(), member_devices(stage));
  for (const UpdatePhase& each : phases) {
    // Streamed weights stay on the host until the action list fetches them.
    if (are_streamed_[stage] && each.lane >= kFirstLaneToDevices) continue;
    const double least = each.streams.latency_seconds + each.streams.seconds_per_byte * each.bytes;
    kinds.push_back({each.lane, flows_.add_shared(each.streams), each.bytes, least});
  }
  return kinds;
}

}  // namespace spillway::planner
