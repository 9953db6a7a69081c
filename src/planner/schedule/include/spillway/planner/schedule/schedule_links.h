#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner_schedule {

/// The links that carry the messages, copies and sums of a run. Ranks are those of all pipelines,
/// one pipeline after the other.
class ScheduleLinks {
 public:
  /// Transfers by number, in the order in which they are asked for.
  using Id = std::uint32_t;
  static constexpr Id kNone = static_cast<Id>(-1);
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();

  struct Transfer {
    double start_seconds = kUnknown;
    double end_seconds = kUnknown;
    Id id = kNone;
  };

  /// Whether the end of a transfer is known when it is asked for: no later one holds it up.
  explicit ScheduleLinks(bool knows_ends) : knows_ends_(knows_ends) {}
  virtual ~ScheduleLinks() = default;
  bool knows_ends() const { return knows_ends_; }

  /// A message that is ready now. Those from one rank to another go one after the other.
  virtual Transfer send(std::uint32_t from, std::uint32_t to, Bytes size, double now) = 0;

  /// A copy out of the device of a rank or into it, not before `since` and the end of `after`.
  /// Those of a direction go one after the other, in the order in which they are asked for.
  virtual Transfer copy(std::uint32_t rank, bool is_out, Bytes size, double since, Id after) = 0;

  /// A rank comes to the sum of the gradients of a stage. Returns the number of that sum.
  virtual Id join(std::uint32_t rank, std::uint32_t stage) = 0;

  /// All have come: these ranks of each pipeline. Of a stage there is one sum at a time.
  virtual Transfer sum(std::uint32_t stage, std::span<const std::uint32_t> members, double now) = 0;

  /// When one of the transfers ends next whose ends are not known, as far as is known now.
  virtual double next_end(double now) = 0;

  /// Adds those of them that have ended by now.
  virtual void take_ended(double now, std::vector<Id>& ended) = 0;

 private:
  bool knows_ends_;
};

struct RunOptions {
  std::uint32_t pipelines = 1;
  /// Action lists in a row. From two on, times are of the last one.
  std::uint32_t repetitions = 1;
  std::vector<double> slowdowns;  ///< By rank of all pipelines; empty: none.
  /// Sums are updates as well, and a stage waits for its own. Steps are such sums in schedules
  /// without reductions, and nothing in others; weights that come wait on the host for them.
  bool updates_on_hosts = false;
  std::uint32_t traced_ranks = std::numeric_limits<std::uint32_t>::max();  ///< The first ones.
};

/// A copy of what a stage swaps of a stash by itself, beside the action at this position.
struct PartSpan {
  std::uint32_t rank = 0;
  std::size_t position = 0;
  double start_seconds = 0.0;
  double end_seconds = 0.0;
};

struct RunTiming {
  /// Ranks of all pipelines; spans and memory over time of traced ranks, one repetition after the
  /// other.
  ScheduleTiming schedule;
  std::vector<PartSpan> parts;  ///< Of traced ranks, by links that do not know ends.
  double end_seconds = 0.0;     ///< When everything was over.
  std::uint64_t events = 0;
};

/// Runs action lists as `time_schedule` does, by these links, and throws as it does. A copy or a
/// message whose end was not known has a span from when it was asked for.
RunTiming run_schedule(const Schedule& schedule, const ScheduleCosts& costs, ScheduleLinks& links,
                       const RunOptions& options = {});

}  // namespace spillway::planner_schedule
