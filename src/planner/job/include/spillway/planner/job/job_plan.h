#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/job/job_request.h"
#include "spillway/planner/layer_order/layer_order.h"
#include "spillway/planner/partition/partition_estimate.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/planner/schedule/generators.h"
#include "spillway/planner/schedule/refusal.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::job {

// A plan is refused as its action lists are.
using planner_schedule::no_plan;
using planner_schedule::OrRefusal;
using planner_schedule::Refusal;

/// Bytes that a rank or a stage holds, by class.
struct HeldBytes {
  Bytes weights;    ///< In all versions and copies.
  Bytes gradients;  ///< Of all copies, like the states.
  Bytes optimizer;
  Bytes buffers;  ///< Other data of layers that is not trained.
  Bytes stash;    ///< Of all micro-batches in flight.
  /// The largest transient of a layer, which stages of a rank share; of a rank whose peak is an
  /// update, that of the optimizer, where it is larger.
  Bytes working;
  Bytes relayed;   ///< Tensors on their way to other stages, or for frozen layers alone.
  Bytes reserved;  ///< Of the device, for storages of no layer; once for all stages of a rank.

  Bytes all() const {
    return weights + gradients + optimizer + buffers + stash + working + relayed + reserved;
  }
};

/// Memory of one rank at the moment of its peak.
struct RankMemory {
  Bytes peak;      ///< Peak by the simulator of the schedule, `fixed` included.
  HeldBytes held;  ///< The bytes of each class at the moment of that peak.
  Bytes fixed;     ///< Bytes that no action moves: working peak, relayed tensors, buffers, frozen
                   ///< parameters, reserved bytes.
  Bytes host;      ///< Bytes on the host: swapped stashes of all micro-batches in flight, and
                   ///< parked weights.
};

/// A model cut into stages, with the action list of each rank. Figures that depend on the number of
/// data-parallel replicas say so; all others are of one replica.
struct JobPlan {
  std::string partitioner;
  std::string schedule;
  std::uint32_t ranks = 1;          ///< Ranks of all data-parallel replicas.
  JobVariant variant;               ///< Options of the schedule, with the defaults filled in.
  std::uint32_t data_parallel = 1;  ///< Number of data-parallel replicas.
  std::uint32_t micro_batches = 1;  ///< Micro-batches of a step, of all replicas.
  std::uint32_t batch = 1;          ///< Work of a step, in micro-batches of the profile's size.
  Bytes device_memory = partition::kNoLimit;
  Bytes host_memory = partition::kNoLimit;  ///< Limit of each rank.
  JobMemoryReduction memory_reduction = JobMemoryReduction::kStages;
  std::string not_tried;  ///< Kind of memory reduction that was skipped, with the reason, or empty.

  layer_order::OrderChoice
      order;  ///< Order of the layers. Stages and recomputed layers count places in it.
  std::vector<partition::StageEstimate>
      stages;  ///< Layers, seconds, swapped bytes and recomputed layers.
  std::vector<schedule::HeldCounts> held;  ///< By stage: the counts that the cuts were made with.
  /// By stage, before and after its stashes are swapped or recomputed: buffers and stash of one
  /// copy of the stage, all other classes summed over its copies. Each class has its own maximum
  /// over time. For ranks with several stages, the estimate that the cuts were made with.
  std::vector<HeldBytes> bytes_before, bytes_after;
  CutEffort cuts_tried = CutEffort::kExact;  ///< Where these are ours: of which they are the best.
  double seconds_per_micro_batch = 0.0;      ///< Seconds of the slowest stage.
  double rounding_gap = 0.0;  ///< Share of time lost by recomputing whole layers, not fractions.

  schedule::Schedule actions;  ///< Action lists with messages.
  planner_schedule::ScheduleCosts costs;
  planner_schedule::ScheduleTiming timing;
  std::vector<RankMemory> memory;  ///< By rank.

  double step_seconds = 0.0;
  double bound_seconds = 0.0;  ///< Proven lower bound of `step_seconds`.

  double gap() const { return share_above(step_seconds, bound_seconds); }
  Bytes peak() const;  ///< Peak of the fullest rank.
  /// Whether any stash is swapped or recomputed.
  bool reduces_memory() const;
  /// Throughput of all data-parallel replicas; 0 for a step that takes no time.
  double micro_batches_per_second() const;
  /// Seconds that the rank with the longest stalls waits for messages.
  double exposed_communication_seconds() const;
  /// Seconds that the rank with the longest stalls waits for swaps, those of its stages included.
  double exposed_swap_seconds() const;
};

/// Whether a step is faster than another by more than rounding: sums in another order differ in
/// their last bits.
inline bool is_faster(double seconds, double than) { return seconds < than * (1.0 - 1e-9); }

inline constexpr double kNoTime = std::numeric_limits<double>::infinity();

/// Step times of incumbent plans, in seconds. A candidate that cannot be faster is pruned.
struct IncumbentSeconds {
  double all = kNoTime;       ///< A candidate is pruned where it is proven to be no faster.
  double deferred = kNoTime;  ///< A candidate is deferred where it is unlikely to be faster.
  /// Idle-time offload is tried only where the plan with unlimited memory is faster.
  double offload = kNoTime;
  double cuts = kNoTime;  ///< Cuts that are proven to be no faster are skipped.
};

/// A candidate of the search: a schedule on a number of data-parallel replicas.
struct JobChoice {
  const planner_schedule::ScheduleGenerator* generator = nullptr;
  std::uint32_t data_parallel = 1;
  JobVariant variant{};
  std::uint32_t micro_batches = 0;  ///< 0: those of the request, or else its batch.
  IncumbentSeconds incumbent{};
  CutEffort cut_effort = CutEffort::kAll;  ///< At most; the request may say less.
};

/// The candidate that a plan was made for.
JobChoice choice_of(const JobPlan& plan);

/// The request with everything that the choice decides filled in, and with the chain of its
/// micro-batches.
JobRequest request_for(const JobRequest& request, const JobChoice& choice);

/// Orders of branches and cuts of one chain, found once. They depend on stages, and what these
/// hold, alone, which many schedules and variants have in common.
class CutMemo {
 public:
  /// As `choose_order`.
  const layer_order::OrderChoice& order(const partition::PartitionProblem& problem,
                                        const layer_order::OrderEffort& effort);
  /// As the partitioner finds them.
  const std::optional<partition::Cuts>& cuts(const partition::Partitioner& partitioner,
                                             const partition::SegmentCosts& costs);

 private:
  using Figures = std::vector<double>;  ///< Figures of a problem, without its chain.

  std::map<std::pair<std::uint64_t, Figures>, layer_order::OrderChoice>
      orders_;  ///< By steps of effort.
  std::map<std::pair<const partition::Partitioner*, Figures>, std::optional<partition::Cuts>> cuts_;
};

/// Results that the plans of one search share, by chain: one for each number of micro-batches and
/// each order of the layers. For requests of one model and batch, on devices of one speed. Not for
/// several threads at once.
class PlanMemo {
 public:
  CutMemo& of(std::uint32_t micro_batches, const layer_order::LayerOrder& order) {
    return chains_[{micro_batches, order}];
  }

 private:
  std::map<std::pair<std::uint32_t, layer_order::LayerOrder>, CutMemo> chains_;
};

/// Cuts the chain into stages for the schedule of `choice` and simulates the step.
///
/// - Cuts: our partitioner takes the fastest simulated step among the cuts that `cut_effort` names.
///   Stages that the request gives are kept. Where the chain may be reordered, the faster of two
///   orders counts: the recorded one, and the one that `choose_order` finds.
/// - Memory of a rank with several stages is shared equally between them, after reserved bytes and
///   the largest working peak; where that does not fit, each gets what the others leave.
/// - Memory reduction: where stages need it and there is a link to the host, both kinds are tried
///   and the faster one counts. The search for idle-time offload is shorter for longer action
///   lists, and is skipped beyond 16,384 passes of micro-batches through stages; `not_tried` then
///   says so. It is skipped, too, where the plan with unlimited memory is no faster than
///   `choice.incumbent.offload`.
///
/// Refused are
/// - `kRequest`: counts that the schedule cannot serve, with counts that it can, and more stages
///   than layers;
/// - `kRoom`: a layer, cuts or a rank that does not fit;
/// - `kPlan`: hosts with too little memory for swapped data, parked weights without a link to the
///   host, and a schedule that changes results, unless the request names it;
/// - `kPruned`: memory must be reduced, and the slowest stage of the best cuts alone takes as long
///   as `choice.incumbent`;
/// - `kDeferred`: the step with unlimited memory takes more than 1.25 times the incumbent.
///
/// `memo` keeps orders and cuts for later candidates.
OrRefusal<JobPlan> plan_choice(const JobRequest& request, const partition::Partitioner& partitioner,
                               const JobChoice& choice, PlanMemo& memo);

/// Whether some optimizer step happens while micro-batches are in flight, so that training gives
/// other results than without a pipeline. The automatic choice skips such schedules.
bool changes_results(const schedule::Schedule& schedule);

}  // namespace spillway::job
