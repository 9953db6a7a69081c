// Parts of stashes that stages swap of every micro-batch.
#include "job_tasks.h"

namespace spillway::planner {

/// Piece by piece: out from the begin of a forward on, and the next forward of the rank needs the
/// room; in behind the backward before, and the own one ends with it at the earliest. In steady
/// state each way has the time from one forward to the next, or from one backward to the next.
void JobTasks::swap_part(TaskId task, const Action& action, TaskId before) {
  const Bytes size = job_.stages[action.stage].swapped;
  if (size == Bytes(0)) return;
  Rank& rank = ranks_[rank_];
  if (action.kind == ActionKind::kForward) {
    if (rank.part_out != kNoTask) graph_.follow(task, rank.part_out);
    rank.part_out = copy_part(action, size, /*is_out=*/true);
    graph_.accompany(rank.part_out, task);
    parts_out_[pipeline_cell(action)] = rank.part_out;
    return;
  }
  if (!makes_input_gradient(action.kind)) return;
  const TaskId in = copy_part(action, size, /*is_out=*/false);
  graph_.follow(in, parts_out_[pipeline_cell(action)]);
  const TaskId since = rank.backward_end != kNoTask ? rank.backward_end : before;
  if (since != kNoTask) graph_.follow(in, since);
  const TaskId end = graph_.add(task_of(TaskKind::kJoin, action, 0.0));
  graph_.follow(end, rank.compute);
  graph_.follow(end, in);
  rank.compute = rank.backward_end = end;
}

TaskId JobTasks::copy_part(const Action& action, Bytes size, bool is_out) {
  Action named = action;
  named.kind = is_out ? ActionKind::kSwapOut : ActionKind::kSwapIn;
  named.overlaps_next = false;
  const TaskId task = graph_.add(task_of(
      is_out ? TaskKind::kCopyOut : TaskKind::kCopyIn, named, static_cast<double>(size.count()),
      flows_.copy(local_, is_out, job_.swap_target == SwapTarget::kDisk)));
  TaskId& last = is_out ? ranks_[rank_].out : ranks_[rank_].in;
  if (last != kNoTask) graph_.queue(task, last);
  last = task;
  return task;
}

}  // namespace spillway::planner
