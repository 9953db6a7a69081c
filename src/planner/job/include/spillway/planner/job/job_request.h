#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/planner/job/job_variant.h"
#include "spillway/planner/partition/layer_order.h"
#include "spillway/planner/partition/partition_problem.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

/// The chooser: every schedule, and every number of data-parallel replicas where none is named.
inline constexpr std::string_view kAnySchedule = "auto";
inline constexpr std::uint32_t kMostRanksOfJob = schedule::kMostRanksOfPlan;

/// Stages that are there already.
struct GivenStages {
  LayerOrder order;                ///< Of the layers; empty: as the chain has them.
  std::vector<LayerIndex> begins;  ///< The first layer of each stage, by place in that order.
};

/// Whose cuts the simulator of the step sees, where the partitioner is ours.
enum class CutEffort : std::uint8_t {
  kExact,     ///< Those with the quickest slowest stage alone: a first look at many choices.
  kMessages,  ///< Also those whose stages wait for their messages.
  kAll,       ///< Also those of all other partitioners.
};

/// A model that is to be trained on many equal devices.
struct JobRequest {
  ModelChain chain;             ///< Times and sizes of one micro-batch. Plans may reorder it.
  double update_seconds = 0.0;  ///< Of the optimizer, over all parameters.
  Bytes reserved;               ///< On each device, beside all that the chain says.
  std::uint32_t ranks = 1;
  std::uint32_t micro_batches =
      1;  ///< Of a step, of all data-parallel replicas together; 0: the chooser's.
  /// How much work a step is, in micro-batches as the chain has them. 0: `micro_batches`. Fewer
  /// micro-batches than that are so much larger: see `with_micro_batches`.
  std::uint32_t batch = 0;
  /// Data parallel pipelines of ranks / data-parallel replicas ranks each, which share the
  /// micro-batches. 0: with the chooser any number, else 1.
  std::uint32_t data_parallel = 0;
  std::string schedule{kAnySchedule};
  JobVariant variant{};  ///< Of the schedule that is named.
  std::string partitioner = "spillway";
  GivenStages stages{};      ///< Without any, the partitioner cuts.
  OrderEffort order_effort;  ///< Of each plan, where branches may run in another order.
  CutEffort cut_effort = CutEffort::kAll;
  Bytes device_memory = kNoLimit;
  LinkCosts link;                          ///< From each rank to each other one.
  std::optional<LinkCosts> reduce_link{};  ///< Of each rank when gradients are summed; else `link`.
  SharedSums shared_sums{};                ///< What these sums share besides.
  /// Of each rank's link to its host, in each direction at the same time; 0: nothing is swapped.
  double swap_bytes_per_second = 0.0;
  /// Of that rate, what cuts and recomputation reckon with for what stages swap of each stash.
  double stage_swap_share = 1.0;
  Bytes host_memory = kNoLimit;  ///< Of each rank, for what is swapped.
};

/// Throws ConfigError for what no job can be: no ranks, data-parallel replicas that do not divide
/// ranks and micro-batches, micro-batches that do not divide the batch, or are open for a schedule
/// that is named, unknown names, rates that are none, and what check(ModelChain) refuses.
void check(const JobRequest& request);

/// The work of a step in micro-batches as the chain has them.
std::uint32_t batch_of(const JobRequest& request);

/// Those that are asked for, or, where they are open, as many as the batch has.
std::uint32_t most_micro_batches(const JobRequest& request);

/// The same step in so many micro-batches, which divide the batch: the chain's is of one of them,
/// k times as large. It is taken to last k times as long, to keep k times as much, and to send k
/// times as much. Large ones are often a little quicker than that; of smaller ones than the chain's
/// nobody knows the times.
JobRequest with_micro_batches(JobRequest request, std::uint32_t micro_batches);

}  // namespace spillway::planner
