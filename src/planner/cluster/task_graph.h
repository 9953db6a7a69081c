#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner {

using TaskId = std::uint32_t;
inline constexpr TaskId kNoTask = static_cast<TaskId>(-1);

enum class TaskKind : std::uint8_t {
  kGate,  ///< Takes no time: a point in an action list.
  kJoin,  ///< The same, but the rank may have waited for it: where a backward is over for others.
  kCompute,
  kMessage,
  kCopyOut,
  kCopyIn,
  kReduction,
};

struct Task {
  TaskKind kind = TaskKind::kGate;
  std::uint16_t repetition = 0;
  std::uint32_t rank = 0;      ///< Rank among all that are simulated.
  std::uint32_t flow = 0;      ///< Which route; see FlowTable.
  TaskId continues = kNoTask;  ///< The phase before, of a chain that is asked for once.
  double amount = 0.0;         ///< Seconds of compute, bytes of each stream.
  double least_seconds = 0.0;  ///< Least time of a reduction, however fast its links.
  Action action;
};

/// The moment of another task that a task waits for.
enum class Moment : std::uint8_t {
  kEnd,    ///< The end; of flows, the arrival of the last byte.
  kFree,   ///< When it has left its link free: latency does not occupy the link.
  kStart,  ///< The start of compute.
};

/// The effect of a task on the memory of its rank, where that is limited.
struct RoomUse {
  double taken = 0.0;           ///< When it starts; bytes.
  double returned = 0.0;        ///< When it has ended.
  bool waits = false;           ///< For room, while stashes leave.
  bool begins_leaving = false;  ///< A stash is on its way out from the start of this task on,
  bool ends_leaving = false;    ///< or until its end.
};

/// The tasks that run, and those that must be over before each: a rank's compute in its order, and
/// messages, copies and reductions beside it. Ready tasks start at once.
class TaskGraph {
 public:
  TaskId add(const Task& task);
  void follow(TaskId after, TaskId before) { edges_.push_back({before, after, Moment::kEnd}); }
  void queue(TaskId after, TaskId before) { edges_.push_back({before, after, Moment::kFree}); }
  void accompany(TaskId after, TaskId before) { edges_.push_back({before, after, Moment::kStart}); }

  void use_room(TaskId task, const RoomUse& use);

  /// Ends the building; it is called once, when all tasks are there.
  void close();

  std::uint32_t size() const { return static_cast<std::uint32_t>(tasks_.size()); }
  const Task& operator[](TaskId task) const { return tasks_[task]; }
  std::uint32_t waits(TaskId task) const { return waits_[task]; }
  /// Null for one that changes nothing.
  const RoomUse* room_use(TaskId task) const {
    return task < room_uses_.size() ? &room_uses_[task] : nullptr;
  }

  template <typename Visit>
  void visit_followers(TaskId task, Moment moment, const Visit& visit) const {
    for (std::uint64_t i = first_[task]; i < first_[task + 1]; ++i)
      if (followers_[i] >> kTaskBits == static_cast<std::uint32_t>(moment))
        visit(followers_[i] & (kMostTasks - 1));
  }

 private:
  static constexpr std::uint32_t kTaskBits = 30;  // The moment is above them.
  static constexpr std::uint32_t kMostTasks = std::uint32_t{1} << kTaskBits;
  struct Edge {
    TaskId before = 0;
    TaskId after = 0;
    Moment moment = Moment::kEnd;
  };

  std::vector<Task> tasks_;
  std::vector<Edge> edges_;
  std::vector<RoomUse> room_uses_;    // By task; empty where memory has no limit.
  std::vector<std::uint64_t> first_;  // Of a task's followers.
  std::vector<std::uint32_t> followers_;
  std::vector<std::uint32_t> waits_;
};

}  // namespace spillway::planner
