#include "spillway/pipeline/tasks/task_queue.h"

#include <algorithm>

#include "spillway/base/assert.h"

namespace spillway::pipeline {

TaskQueue::TaskQueue(std::uint64_t window) : windows_{{0, window}} { SPILLWAY_ASSERT(window > 0); }

TaskQueue::Key TaskQueue::key_of(TaskId id, const Pending& task) {
  return {task.kind == Task::Kind::kCompute, task.is_urgent, task.order, task.is_awaited, id};
}

TaskId TaskQueue::add(const Task& task) {
  const TaskId id(added_++);
  Pending& pending = tasks_[id];
  pending.kind = task.kind;
  pending.micro_batch = task.micro_batch;
  pending.segment = task.segment;
  pending.order_if_awaited = task.order;
  pending.order = task.order_of_rest != 0 ? task.order_of_rest : task.order;
  count(pending, /*comes=*/true);
  if (task.micro_batch) ++left_[*task.micro_batch];
  for (const StorageOrdinal storage : task.reads) {
    InUse& use = storages_[storage];
    if (use.writer) wait_for(id, pending, *use.writer);
    use.readers.insert(id);
    pending.storages.push_back(storage);
  }
  for (const StorageOrdinal storage : task.writes) {
    InUse& use = storages_[storage];
    if (use.writer) wait_for(id, pending, *use.writer);
    for (const TaskId reader : use.readers) wait_for(id, pending, reader);
    use.readers.clear();
    use.writer = id;
    pending.storages.push_back(storage);
  }
  if (pending.waits_for.empty()) make_ready(id, pending);
  if (task.is_awaited) raise(id, &Pending::is_awaited);
  return id;
}

void TaskQueue::wait_for(TaskId id, Pending& task, TaskId earlier) {
  if (earlier == id || !task.waits_for.insert(earlier).second) return;
  tasks_.at(earlier).followers.push_back(id);
}

void TaskQueue::make_ready(TaskId id, const Pending& task) {
  if (task.micro_batch && !is_in_window(*task.micro_batch)) {
    outside_[*task.micro_batch].push_back(id);
    return;
  }
  const Key key = key_of(id, task);
  ready_.insert(key);
  if (task.segment) ready_in_segment_[*task.segment].insert(key);
}

/// Whether it was.
bool TaskQueue::unmake_ready(TaskId id, const Pending& task) {
  const Key key = key_of(id, task);
  if (ready_.erase(key) == 0) return false;
  if (!task.segment) return true;
  const auto same = ready_in_segment_.find(*task.segment);
  same->second.erase(key);
  if (same->second.empty()) ready_in_segment_.erase(same);
  return true;
}

bool TaskQueue::is_in_window(std::uint64_t micro_batch) const {
  if (windows_.empty()) return true;
  std::uint64_t widest = 0;
  for (const Window& each : windows_) widest = std::max(widest, each.micro_batches);
  return micro_batch < left_.begin()->first + widest;
}

void TaskQueue::lift_window() {
  windows_.clear();
  move_window();
}

/// The oldest micro-batch is another one, or the window is lifted.
void TaskQueue::move_window() {
  while (!outside_.empty() && is_in_window(outside_.begin()->first)) {
    const std::vector<TaskId> inside = std::move(outside_.begin()->second);
    outside_.erase(outside_.begin());
    for (const TaskId id : inside) make_ready(id, tasks_.at(id));
  }
}

void TaskQueue::begin_list(std::span<const ListedAction> list, std::uint64_t window) {
  // No phase of the first list has come before.
  for (ListedAction& action : list_) action.phase = 0;
  phase_ = std::max<std::uint64_t>(phase_, list_.empty() ? 0 : 1);
  list_.insert(list_.end(), list.begin(), list.end());
  last_phase_ = 0;
  for (const ListedAction& action : list) last_phase_ = std::max(last_phase_, action.phase);
  is_list_ended_ = false;
  if (windows_.empty()) return;
  windows_.push_back({list_.empty() ? 0 : list_.back().order, window});
  drop_windows();
  move_window();
}

/// Those of lists that are done, but the latest. A list that goes on needs its own: the next one's
/// may be smaller.
void TaskQueue::drop_windows() {
  while (windows_.size() > 1 && (list_.empty() || windows_.front().last < list_.front().order))
    windows_.pop_front();
}

void TaskQueue::come_to_phase(std::uint64_t phase) { phase_ = std::max(phase_, phase); }

void TaskQueue::end_list() { is_list_ended_ = true; }

void TaskQueue::give_up_list() {
  list_.clear();
  is_list_ended_ = true;
}

void TaskQueue::count(const Pending& task, bool comes) {
  if (task.order == 0 || task.kind != Task::Kind::kCompute) return;
  std::uint64_t& left = left_of_action_[task.order];
  left += comes ? 1 : -1;
  if (left == 0) left_of_action_.erase(task.order);
}

bool TaskQueue::is_asked_for(const ListedAction& action) const {
  return is_list_ended_ || action.phase < phase_;
}

bool TaskQueue::waits_for_turn(const Key& key) const {
  if (key.order == 0 || list_.empty()) return false;
  // What the program waits for before it asks for the rest: that comes later for it.
  if (key.is_urgent && !is_list_ended_ && phase_ < last_phase_) return false;
  return key.order > list_.front().order && is_asked_for(list_.front());
}

std::optional<TaskQueue::Key> TaskQueue::first_computed() {
  while (!list_.empty() && is_asked_for(list_.front()) &&
         !left_of_action_.contains(list_.front().order))
    list_.pop_front();
  drop_windows();
  // Those that are urgent, and the others, each by their orders.
  for (const bool is_urgent : {true, false}) {
    const auto first = ready_.lower_bound({true, is_urgent, 0, true, TaskId(0)});
    if (first == ready_.end() || first->is_urgent != is_urgent) continue;
    if (!waits_for_turn(*first)) return *first;
    holds_back_ = true;
  }
  return std::nullopt;
}

std::optional<TaskId> TaskQueue::next() {
  holds_back_ = false;
  if (ready_.empty()) return std::nullopt;
  std::optional<Key> key = *ready_.begin();
  if (key->is_computed) {
    key = first_computed();
    if (!key) return std::nullopt;
    const auto same = segment_ ? ready_in_segment_.find(*segment_) : ready_in_segment_.end();
    if (same != ready_in_segment_.end()) {
      const Key& other = *same->second.begin();
      if (other.order <= key->order && !waits_for_turn(other)) key = other;
    }
  }
  const TaskId id = key->id;
  Pending& task = tasks_.at(id);
  task.is_taken = true;
  unmake_ready(id, task);
  if (task.kind == Task::Kind::kCompute) segment_ = task.segment;
  return id;
}

void TaskQueue::done(TaskId id) {
  const auto found = tasks_.find(id);
  SPILLWAY_ASSERT(found != tasks_.end() && found->second.is_taken);
  const Pending task = std::move(found->second);
  tasks_.erase(found);
  count(task, /*comes=*/false);
  for (const TaskId follower : task.followers) {
    Pending& waiting = tasks_.at(follower);
    waiting.waits_for.erase(id);
    if (waiting.waits_for.empty()) make_ready(follower, waiting);
  }
  for (const StorageOrdinal storage : task.storages) let_go(id, storage);
  if (!task.micro_batch) return;
  const auto left = left_.find(*task.micro_batch);
  if (--left->second > 0) return;
  left_.erase(left);
  move_window();
}

void TaskQueue::let_go(TaskId id, StorageOrdinal storage) {
  const auto found = storages_.find(storage);
  if (found == storages_.end()) return;  // Read and written by one task.
  InUse& use = found->second;
  if (use.writer == id) use.writer.reset();
  use.readers.erase(id);
  if (!use.writer && use.readers.empty()) storages_.erase(found);
}

void TaskQueue::demand(StorageOrdinal storage) {
  const auto found = storages_.find(storage);
  if (found != storages_.end() && found->second.writer)
    raise(*found->second.writer, &Pending::is_urgent);
}

/// Marks a task, and all that it waits for.
void TaskQueue::raise(TaskId first, bool Pending::*mark) {
  std::vector<TaskId> left{first};
  while (!left.empty()) {
    const TaskId id = left.back();
    left.pop_back();
    Pending& task = tasks_.at(id);
    if (task.*mark) continue;
    // What is of no micro-batch comes behind a whole one, or behind all of a step.
    if (mark == &Pending::is_awaited && id != first && !task.micro_batch) continue;
    const bool is_ready = unmake_ready(id, task);
    task.*mark = true;
    if (task.is_awaited && task.order != task.order_if_awaited) {
      count(task, /*comes=*/false);
      task.order = task.order_if_awaited;
      count(task, /*comes=*/true);
    }
    if (is_ready) make_ready(id, task);
    left.insert(left.end(), task.waits_for.begin(), task.waits_for.end());
  }
}

bool TaskQueue::is_promised(StorageOrdinal storage) const {
  const auto found = storages_.find(storage);
  return found != storages_.end() && found->second.writer.has_value();
}

}  // namespace spillway::pipeline
