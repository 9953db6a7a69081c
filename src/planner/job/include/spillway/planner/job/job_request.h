#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/planner/job/job_variant.h"
#include "spillway/planner/layer_order/layer_order.h"
#include "spillway/planner/partition/partition_problem.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::job {

/// Name of the automatic choice among all schedules, and among all numbers of data-parallel
/// replicas unless the request names one.
inline constexpr std::string_view kAnySchedule = "auto";
inline constexpr std::uint32_t kMostRanksOfJob = schedule::kMostRanksOfPlan;

/// Stages of an existing plan.
struct GivenStages {
  layer_order::LayerOrder order;  ///< Order of the layers; empty: the order of the chain.
  std::vector<partition::LayerIndex>
      begins;  ///< First layer of each stage, as a place in that order.
};

/// Candidate partitions that our partitioner has simulated for each schedule.
enum class CutEffort : std::uint8_t {
  kExact,     ///< One: the cuts with the fastest slowest stage.
  kMessages,  ///< Also the cuts that count messages as time of their stages.
  kAll,       ///< Also the cuts of all other partitioners.
};
/// Of each candidate, where there are several.
inline constexpr CutEffort kFirstLook = CutEffort::kMessages;

/// A model to train on many equal devices.
struct JobRequest {
  partition::ModelChain chain;   ///< Seconds and bytes of one micro-batch; plans may reorder it.
  double update_seconds = 0.0;   ///< Seconds of the optimizer for all parameters.
  Bytes reserved;                ///< Bytes of each device that the chain does not include.
  bool guesses_forward = false;  ///< The chain rests on a guess, see `MeasuredModel`; for reports.
  std::uint32_t ranks = 1;
  std::uint32_t micro_batches =
      1;  ///< Of a step, summed over data-parallel replicas; 0: automatic.
  /// Work of a step, in micro-batches of the chain's size; 0: `micro_batches`. With fewer
  /// micro-batches, each is larger: see `with_micro_batches`.
  std::uint32_t batch = 0;
  /// Data-parallel replicas: pipelines of ranks / data_parallel ranks each, which share the
  /// micro-batches. 0: any number with kAnySchedule, else 1.
  std::uint32_t data_parallel = 0;
  std::string schedule{kAnySchedule};
  JobVariant variant{};  ///< Options of the named schedule.
  std::string partitioner = "spillway";
  GivenStages stages{};  ///< Stages to keep; empty: the partitioner cuts.
  layer_order::OrderEffort
      order_effort;  ///< Limit of the search for an order of branches, per plan.
  CutEffort cut_effort = CutEffort::kAll;
  Bytes device_memory = partition::kNoLimit;
  LinkCosts link;                          ///< Link from each rank to each other one.
  std::optional<LinkCosts> reduce_link{};  ///< Link of each rank for gradient sums; else `link`.
  planner_schedule::SharedSums
      shared_sums{};  ///< Links that gradient sums of several stages share.
  /// Of each rank's link to its host, in each direction at the same time; none: no swaps.
  TransferRate swap_rate;
  /// Share of that rate that cuts and recomputation count on for swapped parts of stashes.
  double stage_swap_share = 1.0;
  Bytes host_memory = partition::kNoLimit;  ///< Limit of each rank for swapped data.
};

/// Throws ConfigError for a request that no job can meet: no ranks; data-parallel replicas that do
/// not divide ranks and micro-batches; micro-batches that do not divide the batch, or that are open
/// for a named schedule; unknown names; bandwidths that are not positive; and all that
/// check(ModelChain) refuses.
void check(const JobRequest& request);

/// Work of a step, in micro-batches of the chain's size.
std::uint32_t batch_of(const JobRequest& request);

/// Micro-batches of the request, or those of its batch where they are open.
std::uint32_t most_micro_batches(const JobRequest& request);

/// The same step in this number of micro-batches, a divisor of the batch. The chain is then of one
/// micro-batch that is k times as large, and is taken to need k times the time, the memory and the
/// messages. Real large micro-batches are often a little faster than that; times of smaller ones
/// than the profiled ones are not known.
JobRequest with_micro_batches(JobRequest request, std::uint32_t micro_batches);

}  // namespace spillway::job
