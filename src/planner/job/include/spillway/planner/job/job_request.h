#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "spillway/planner/partition/partition_problem.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

/// The chooser: every schedule, and every number of groups where none is named.
inline constexpr std::string_view kAnySchedule = "auto";
inline constexpr std::uint32_t kMostRanksOfJob = 1U << 16U;

/// A model that is to be trained on many equal devices.
struct JobRequest {
  ModelChain chain;             ///< Times and sizes of one micro-batch.
  double update_seconds = 0.0;  ///< Of the optimizer, over all parameters.
  Bytes reserved;               ///< On each device, beside all that the chain says.
  std::uint32_t ranks = 1;
  std::uint32_t micro_batches = 1;  ///< Of a step, of all groups together.
  /// Data parallel pipelines of ranks / groups ranks each, which share the micro-batches. 0: with
  /// the chooser any number, else 1.
  std::uint32_t groups = 0;
  std::string schedule{kAnySchedule};
  std::string partitioner = "spillway";
  Bytes device_memory = kNoLimit;
  LinkCosts
      link;  ///< From each rank to each other one, and of each rank when gradients are summed.
  /// Of each rank's link to its host, in each direction at the same time; 0: nothing is swapped.
  double swap_bytes_per_second = 0.0;
  Bytes host_memory = kNoLimit;  ///< Of each rank, for what is swapped.
};

/// Throws ConfigError for what no job can be: no ranks, groups that do not divide ranks and
/// micro-batches, unknown names, rates that are none, and what check(ModelChain) refuses.
void check(const JobRequest& request);

/// What no schedule and no cuts can beat on so many ranks: all work shared evenly, one micro-batch
/// on its way through all layers and back, or the largest layer on as many ranks as can hold it:
/// two of each group, and as many groups as there can be. Memory, messages and reductions only add
/// to it. Half of a backward is weight gradients, which are not on that way.
double job_bound(const JobRequest& request);

}  // namespace spillway::planner
