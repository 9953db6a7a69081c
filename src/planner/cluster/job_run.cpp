#include "job_run.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

bool takes_links(TaskKind kind) {
  return kind != TaskKind::kGate && kind != TaskKind::kJoin && kind != TaskKind::kCompute;
}

JobSpan::Lane lane_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::kMessage: return JobSpan::Lane::kMessage;
    case TaskKind::kCopyOut: return JobSpan::Lane::kOut;
    case TaskKind::kCopyIn: return JobSpan::Lane::kIn;
    case TaskKind::kReduction: return JobSpan::Lane::kReduction;
    default: return JobSpan::Lane::kCompute;
  }
}

}  // namespace

JobRun::JobRun(const Job& job, const TaskGraph& graph, std::uint32_t ranks,
               std::vector<double> link_rates, RouteOf route_of, const std::vector<double>& held)
    : job_(job),
      graph_(graph),
      route_of_(std::move(route_of)),
      flows_(std::move(link_rates)),
      waits_(graph.size()),
      asked_(graph.size(), 0.0),
      causes_(graph.size(), kNoTask),
      free_since_(ranks, 0.0),
      repetition_ends_(job.repetitions, 0.0) {
  timing_.ranks.resize(ranks);
  for (const double bytes : held) {
    Room& room = rooms_.emplace_back();
    room.held = room.most = bytes;
  }
  for (TaskId id = 0; id < graph.size(); ++id) {
    waits_[id] = graph.waits(id);
    if (waits_[id] == 0) ready_.emplace_back(id, kNoTask);
  }
}

JobTiming JobRun::run() {
  std::vector<std::uint32_t> ended;
  while (true) {
    start_ready();
    flows_.settle(now_);
    const double next_flow = flows_.next_end();
    if (events_.empty() && next_flow == std::numeric_limits<double>::infinity()) break;
    now_ = std::max(now_, events_.empty() ? next_flow : std::min(next_flow, events_.top().seconds));
    while (!events_.empty() && events_.top().seconds <= now_) {
      const TaskId task = events_.top().task;
      events_.pop();
      finish(task);
    }
    ended.clear();
    flows_.take_ended(now_, ended);
    for (const std::uint32_t task : ended) end_flow(task);
  }
  if (finished_ < graph_.size()) fail_where_it_stalls();
  const std::size_t last = repetition_ends_.size() - 1;
  timing_.step_seconds = last == 0 ? now_ : repetition_ends_[last] - repetition_ends_[last - 1];
  double busy = 0.0;
  for (const JobRank& rank : timing_.ranks) busy += rank.busy_seconds;
  const double all = timing_.step_seconds * static_cast<double>(timing_.ranks.size());
  timing_.bubble = all > 0.0 ? 1.0 - busy / all : 0.0;
  timing_.events = event_count_;
  return std::move(timing_);
}

void JobRun::fail_where_it_stalls() const {
  for (TaskId id = 0; id < graph_.size(); ++id)
    if (waits_[id] > 0)
      throw PlanError("rank {} waits for ever at {} (check the order of reductions and messages)",
                      graph_[id].rank, graph_[id].action);
  throw PlanError("after {} s nothing goes on, and {} of {} actions are over (check the rates of "
                  "links)",
                  now_, finished_, graph_.size());
}

void JobRun::start_ready() {
  // Gates make others ready at once.
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    const auto [task, cause] = ready_[i];
    start(task, cause);
  }
  ready_.clear();
}

/// Whether a task has its room now, which it then takes; else it waits. As in `time_schedule`, a
/// limit holds nobody off where nothing leaves.
bool JobRun::has_room(TaskId id, TaskId cause) {
  const RoomUse* const use = graph_.room_use(id);
  if (rooms_.empty() || !use) return true;
  Room& room = rooms_[graph_[id].rank];
  if (use->waits && room.leaving > 0 &&
      room.held + use->taken > static_cast<double>(job_.memory->count())) {
    room.waiting = id;
    room.cause = cause;
    room.waiting_since = std::min(room.waiting_since, now_);
    return false;
  }
  room.held += use->taken;
  room.most = std::max(room.most, room.held);
  if (use->begins_leaving) ++room.leaving;
  return true;
}

void JobRun::give_room(TaskId id) {
  const RoomUse* const use = graph_.room_use(id);
  if (rooms_.empty() || !use) return;
  Room& room = rooms_[graph_[id].rank];
  room.held += use->returned;
  if (use->ends_leaving) --room.leaving;
  if (room.waiting == kNoTask) return;
  ready_.emplace_back(room.waiting, room.cause);
  room.waiting = kNoTask;
}

/// Since when a task that starts now has waited for room, which the rank did with it; else now.
double JobRun::end_wait_for_room(TaskId id) {
  const RoomUse* const use = graph_.room_use(id);
  if (rooms_.empty() || !use || !use->waits) return now_;
  const Task& task = graph_[id];
  const double since = std::min(now_, std::exchange(rooms_[task.rank].waiting_since, kNever));
  if (task.repetition + 1U == job_.repetitions)
    timing_.ranks[task.rank].exposed_swap_seconds += now_ - since;
  return since;
}

void JobRun::start(TaskId id, TaskId cause) {
  const Task& task = graph_[id];
  if (!has_room(id, cause)) return;
  const double until = end_wait_for_room(id);
  if (task.kind == TaskKind::kGate) return finish(id);
  if (task.kind == TaskKind::kJoin) {
    attribute_wait(task, cause, until);
    return finish(id);
  }
  ++event_count_;
  if (task.kind == TaskKind::kCompute) {
    attribute_wait(task, cause, until);
    events_.push({now_ + task.amount, event_count_, id});
    graph_.visit_followers(id, Moment::kStart, [&](TaskId after) {
      asked_[after] = now_;
      release(after, id);
    });
    return;
  }
  if (task.continues != kNoTask) asked_[id] = asked_[task.continues];
  if (task.kind == TaskKind::kReduction) started_[id] = now_;
  flows_.start(route_of_(task).uses, task.amount, id, now_);
}

/// What came last is what the rank has waited for: since it was asked for, or since the rank has
/// had nothing else to do. Before that, somebody else computed: a bubble.
void JobRun::attribute_wait(const Task& task, TaskId cause, double until) {
  if (task.repetition + 1U < job_.repetitions) return;
  JobRank& rank = timing_.ranks[task.rank];
  rank.busy_seconds += task.amount;
  // Weights that come from the host wait there for their update.
  for (int i = 0; i < 2 && cause != kNoTask && takes_links(graph_[cause].kind); ++i) {
    const TaskKind kind = graph_[cause].kind;
    const bool is_copy = kind == TaskKind::kCopyOut || kind == TaskKind::kCopyIn;
    const double waited = until - std::max(free_since_[task.rank], asked_[cause]);
    (is_copy ? rank.exposed_swap_seconds : rank.exposed_communication_seconds) +=
        std::max(0.0, waited);
    until = asked_[cause];
    cause = is_copy ? causes_[cause] : kNoTask;
    if (cause != kNoTask && graph_[cause].kind != TaskKind::kReduction) return;
  }
}

/// Its links are free; with a latency, its last byte is still on the way.
void JobRun::end_flow(TaskId id) {
  graph_.visit_followers(id, Moment::kFree, [&](TaskId after) { release(after, id); });
  double latency = route_of_(graph_[id]).latency_seconds;
  if (graph_[id].kind == TaskKind::kReduction)
    latency = started_.extract(id).mapped() + graph_[id].least_seconds - now_;
  if (latency > 0.0)
    events_.push({now_ + latency, ++event_count_, id});
  else
    finish(id);
}

void JobRun::finish(TaskId id) {
  ++finished_;
  const Task& task = graph_[id];
  give_room(id);
  if (task.kind == TaskKind::kCompute || task.kind == TaskKind::kJoin) {
    free_since_[task.rank] = now_;
    repetition_ends_[task.repetition] = now_;
  }
  record(id);
  graph_.visit_followers(id, Moment::kEnd, [&](TaskId after) {
    if (!takes_links(task.kind) || task.kind == TaskKind::kReduction)
      asked_[after] = std::max(asked_[after], now_);
    release(after, id);
  });
}

void JobRun::release(TaskId id, TaskId cause) {
  if (--waits_[id] > 0) return;
  causes_[id] = cause;
  ready_.emplace_back(id, cause);
}

void JobRun::record(TaskId id) {
  const Task& task = graph_[id];
  const bool is_point = task.kind == TaskKind::kGate || task.kind == TaskKind::kJoin;
  if (is_point || task.rank >= job_.traced_ranks) return;
  const double start = task.kind == TaskKind::kCompute ? now_ - task.amount : asked_[id];
  timing_.spans.push_back(
      {task.rank, lane_of(task.kind), task.action, task.repetition, start, now_});
}

}  // namespace spillway::planner
