#include "task_graph.h"

#include "spillway/base/error.h"

namespace spillway::planner {

TaskId TaskGraph::add(const Task& task) {
  if (tasks_.size() >= kMostTasks)
    throw ConfigError("the job has more than {} actions (use fewer repetitions or micro-batches)",
                      kMostTasks);
  tasks_.push_back(task);
  return static_cast<TaskId>(tasks_.size() - 1);
}

void TaskGraph::use_room(TaskId task, const RoomUse& use) {
  if (room_uses_.size() <= task) room_uses_.resize(task + 1);
  room_uses_[task] = use;
}

void TaskGraph::close() {
  first_.assign(tasks_.size() + 1, 0);
  waits_.assign(tasks_.size(), 0);
  for (const Edge& edge : edges_) {
    ++first_[edge.before + 1];
    ++waits_[edge.after];
  }
  for (std::size_t i = 0; i < tasks_.size(); ++i) first_[i + 1] += first_[i];
  followers_.resize(edges_.size());
  std::vector<std::uint64_t> next(first_.begin(), first_.end() - 1);
  for (const Edge& edge : edges_)
    followers_[next[edge.before]++] = edge.after | static_cast<std::uint32_t>(edge.moment)
                                                       << kTaskBits;
  edges_ = {};
}

}  // namespace spillway::planner
