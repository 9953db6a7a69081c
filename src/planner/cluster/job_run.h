#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "spillway/planner/cluster/fair_flows.h"
#include "spillway/planner/cluster/job_simulation.h"
#include "task_graph.h"

namespace spillway::planner {

/// The route of a task: a span that lives as long as the run, and its latency.
struct TaskRoute {
  std::span<const LinkUse> uses;
  double latency_seconds = 0.0;
};

/// One run of a task graph in discrete events.
class JobRun {
 public:
  using RouteOf = std::function<TaskRoute(const Task& task)>;

  /// `link_rates` are of the links that routes name. `held` is what each rank holds at the begin,
  /// one pipeline after the other; empty where memory has no limit. All must outlive it.
  JobRun(const Job& job, const TaskGraph& graph, std::uint32_t ranks,
         std::vector<double> link_rates, RouteOf route_of, const std::vector<double>& held);

  /// All but what concerns links. Throws PlanError for tasks that wait for ever.
  JobTiming run();

  /// Bytes that have passed a link.
  double carried(std::uint32_t link) const { return flows_.carried(link); }
  /// Bytes of a rank at its fullest; where memory has a limit.
  double most_held(std::uint32_t rank) const { return rooms_[rank].most; }
  /// Returns the seconds until everything was over.
  double end_seconds() const { return now_; }

 private:
  struct Event {
    double seconds = 0.0;
    std::uint64_t number = 0;
    TaskId task = 0;
    bool operator>(const Event& other) const {
      return seconds != other.seconds ? seconds > other.seconds : number > other.number;
    }
  };

  static constexpr double kNever = std::numeric_limits<double>::infinity();

  /// The memory of a rank. Of an action list one task at most waits for room: all others are behind
  /// it.
  struct Room {
    double held = 0.0;
    double most = 0.0;
    std::uint32_t leaving = 0;  // Stashes on their way out.
    TaskId waiting = kNoTask;
    TaskId cause = kNoTask;  // Of the one that waits.
    double waiting_since = kNever;
  };

  void start_ready();
  bool has_room(TaskId id, TaskId cause);
  void give_room(TaskId id);
  double end_wait_for_room(TaskId id);
  void start(TaskId id, TaskId cause);
  void attribute_wait(const Task& task, TaskId cause, double until);
  void end_flow(TaskId id);
  void finish(TaskId id);
  void release(TaskId id, TaskId cause);
  void record(TaskId id);
  [[noreturn]] void fail_where_it_stalls() const;

  const Job& job_;
  const TaskGraph& graph_;
  RouteOf route_of_;
  FairFlows flows_;
  std::vector<std::uint32_t> waits_;
  std::vector<double> asked_;   // By task: since when it is wanted, whoever is before it.
  std::vector<TaskId> causes_;  // By task: what it has waited for to the last.
  std::unordered_map<TaskId, double> started_;  // Of reductions that run.
  std::vector<double> free_since_;              // By rank.
  std::vector<Room> rooms_;                     // By rank; empty without a limit.
  std::vector<double> repetition_ends_;
  std::vector<std::pair<TaskId, TaskId>> ready_;  // And which one was the last before it.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t event_count_ = 0;
  std::uint32_t finished_ = 0;
  double now_ = 0.0;
  JobTiming timing_;
};

}  // namespace spillway::planner
