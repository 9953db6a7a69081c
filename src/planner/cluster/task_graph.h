#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/schedule/schedule.h"

namespace spillway::planner {

using TaskId = std::uint32_t;
inline constexpr TaskId kNoTask = static_cast<TaskId>(-1);

enum class TaskKind : std::uint8_t {
  kGate,  ///< Takes no time: a point in a list.
  kCompute,
  kMessage,
  kCopyOut,
  kCopyIn,
  kReduction,
};

struct Task {
  TaskKind kind = TaskKind::kGate;
  std::uint16_t repetition = 0;
  std::uint32_t rank = 0;      ///< Of all that are simulated.
  std::uint32_t flow = 0;      ///< Which route; see FlowTable.
  TaskId continues = kNoTask;  ///< The phase before, of a chain that is asked for once.
  double amount = 0.0;         ///< Seconds of compute, bytes of each stream.
  double least_seconds = 0.0;  ///< Of a reduction, however fast its links.
  Action action;
};

/// What runs, and what must be over before: a rank's compute in its order, and messages, copies
/// and reductions beside it. Ready tasks start at once.
class TaskGraph {
 public:
  TaskId add(const Task& task);
  /// `after` starts when `before` has ended; for flows, when the last byte has arrived.
  void follow(TaskId after, TaskId before) { edges_.push_back({before, after, false}); }
  /// `after` starts when `before` has left its link free: latency keeps nobody off.
  void queue(TaskId after, TaskId before) { edges_.push_back({before, after, true}); }

  /// To be called once, when all is there.
  void close();

  std::uint32_t size() const { return static_cast<std::uint32_t>(tasks_.size()); }
  const Task& operator[](TaskId task) const { return tasks_[task]; }
  std::uint32_t waits(TaskId task) const { return waits_[task]; }

  template <typename Visit>
  void visit_followers(TaskId task, bool is_queued, const Visit& visit) const {
    for (std::uint64_t i = first_[task]; i < first_[task + 1]; ++i)
      if (is_queued == ((followers_[i] & kQueued) != 0)) visit(followers_[i] & ~kQueued);
  }

 private:
  static constexpr std::uint32_t kQueued = std::uint32_t{1} << 31U;
  struct Edge {
    TaskId before = 0;
    TaskId after = 0;
    bool is_queued = false;
  };

  std::vector<Task> tasks_;
  std::vector<Edge> edges_;
  std::vector<std::uint64_t> first_;  // Of a task's followers.
  std::vector<std::uint32_t> followers_;
  std::vector<std::uint32_t> waits_;
};

}  // namespace spillway::planner
