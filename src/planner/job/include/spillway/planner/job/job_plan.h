#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/planner/job/held_bytes.h"
#include "spillway/planner/job/job_request.h"
#include "spillway/planner/job/plan_memo.h"
#include "spillway/planner/partition/partition_estimate.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/planner/schedule/generators.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

/// What one rank holds at its fullest moment.
struct RankMemory {
  Bytes peak;      ///< By the schedule's simulator, with `fixed`.
  HeldBytes held;  ///< The same by class, all of them at the moment of the peak.
  Bytes fixed;     ///< What no action moves: working peak, relayed tensors, buffers, frozen
                   ///< parameters, reserved bytes.
  Bytes host;      ///< Swapped stash of all micro-batches in flight, and parked weights.
};

/// A model cut into stages, and what each rank does with them in which order.
struct JobPlan {
  std::string partitioner;
  std::string schedule;
  std::uint32_t ranks = 1;          ///< Of all data-parallel replicas.
  JobVariant variant;               ///< What the schedule leaves open, as it was made.
  std::uint32_t data_parallel = 1;  ///< That do the same with micro-batches of their own.
  std::uint32_t micro_batches = 1;  ///< Of all data-parallel replicas.
  std::uint32_t batch = 1;          ///< The same in micro-batches as the request's chain has them.
  Bytes device_memory = kNoLimit;
  Bytes host_memory = kNoLimit;  ///< Of each rank.
  JobMemoryReduction memory_reduction = JobMemoryReduction::kStages;
  std::string not_tried;  ///< Which kind of memory reduction was left out, and why; mostly empty.

  /// Of the layers. Stages and what they recompute count places in it.
  OrderChoice order;
  std::vector<StageEstimate> stages;  ///< Layers, times, what is swapped and recomputed.
  std::vector<StageFactors> factors;  ///< By stage, that the cuts were made for.
  /// By stage, before and after swaps and recomputation of its stash: in all copies together, but
  /// buffers and stash of one. Each class at its most, which need not be at the same moment. Where
  /// ranks have several stages, it is what the cuts were made for.
  std::vector<HeldBytes> bytes_before, bytes_after;
  double seconds_per_micro_batch = 0.0;  ///< Of the slowest stage.
  double rounding_gap = 0.0;  ///< What recomputing whole layers costs there, over fractions.

  Schedule actions;  ///< Of one data-parallel replica, with messages.
  ScheduleCosts costs;
  ScheduleTiming timing;
  std::vector<RankMemory> memory;  ///< By rank of a data-parallel replica.

  double step_seconds = 0.0;
  double bound_seconds = 0.0;

  double gap() const { return bound_seconds > 0.0 ? step_seconds / bound_seconds - 1.0 : 0.0; }
  Bytes peak() const;
  /// Whether stashes are swapped or recomputed, however it was decided.
  bool reduces_memory() const;
  double micro_batches_per_second()
      const;  ///< Of all data-parallel replicas; 0 for a step that takes no time.
  double exposed_communication_seconds() const;  ///< Of the rank that waits most.
  double exposed_swap_seconds() const;           ///< The same for swaps, stages' own included.
};

/// Whether a step is faster than another: sums in another order differ in the last bits.
inline bool is_faster(double seconds, double than) { return seconds < than * (1.0 - 1e-9); }

inline constexpr double kNoTime = std::numeric_limits<double>::infinity();

/// What a plan is not worth the while for, unless it may be faster.
struct IncumbentSeconds {
  double all = kNoTime;       ///< Given up where it is proven that no plan of the choice is.
  double deferred = kNoTime;  ///< Deferred where it is not likely that one is.
  double offload = kNoTime;   ///< Idle-time offload is tried for plans that are faster without any
                              ///< memory reduction.
  double cuts = kNoTime;  ///< What other cuts take: those that surely take as long are left out.
};

/// A schedule on so many data-parallel replicas.
struct JobChoice {
  const ScheduleGenerator* generator = nullptr;
  std::uint32_t data_parallel = 1;
  JobVariant variant{};
  std::uint32_t micro_batches = 0;  ///< 0: as many as the request says, or as its batch has.
  IncumbentSeconds incumbent{};
};

/// The choice that a plan came of.
JobChoice choice_of(const JobPlan& plan);

/// The request as it is for one choice, which leaves nothing open: the chain of its micro-batches.
JobRequest request_for(const JobRequest& request, const JobChoice& choice);

/// Ranks that do not fit: the fullest one, and what it needs as planned; where there are no cuts
/// that fit, under those that hold least.
class NoRoomError : public PlanError {
 public:
  NoRoomError(const std::string& sentence, std::uint32_t rank, Bytes needed)
      : PlanError("{}", sentence), rank_(rank), needed_(needed) {}

  std::uint32_t rank() const { return rank_; }
  Bytes needed() const { return needed_; }

 private:
  std::uint32_t rank_;
  Bytes needed_;
};

/// A choice that is not worth the while, for either reason.
class GivenUpError : public PlanError {
 public:
  using PlanError::PlanError;
};

/// A choice that cannot be faster than its `incumbent`.
class TooSlowError : public GivenUpError {
 public:
  using GivenUpError::GivenUpError;
};

/// A choice that is not likely to be faster, and was not looked at.
class DeferredError : public GivenUpError {
 public:
  DeferredError(const std::string& sentence, double seconds)
      : GivenUpError("{}", sentence), seconds_(seconds) {}

  /// Of a step as if there were room.
  double seconds() const { return seconds_; }

 private:
  double seconds_;
};

/// The stages that a partitioner cuts for a schedule, and their step by the schedule's simulator.
/// Where the partitioner is ours, they are those of the fastest step among the cuts that
/// `cut_effort` names. Stages that the request gives are not cut anew. Where the chain may be
/// reordered, all partitioners cut it in the order that `choose_order` finds for these stages, and
/// as it stands; the faster one counts. Stages get the memory of their device in equal parts where
/// a rank has several, behind reserved bytes and the largest working peak, or what others leave
/// where equal parts do not do. Where stages need memory reduction and there is a link to the host,
/// both kinds of memory reduction are tried, and the faster one counts; the search for idle-time
/// offload is shorter for longer action lists, and left out beyond 16,384 passes of micro-batches
/// through stages, which the plan then says.
///
/// Throws ConfigError for counts that the schedule cannot serve, with ones that it can, and for
/// more stages than layers; NoRoomError where a layer, cuts or ranks do not fit; PlanError where
/// hosts have too little memory for what is swapped, for parked weights without a link to the host,
/// and, where the request's schedule is the chooser's, for one that changes results; TooSlowError
/// where memory reduction is needed, and the step is no faster than `choice.incumbent` by what the
/// slowest stage of the best cuts takes; PutOffError where it is not likely to be by what it would
/// take without memory reduction, with a fourth of it to spare. Idle-time offload is only tried
/// where it would be faster without any memory reduction.
JobPlan make_job_plan(const JobRequest& request, const Partitioner& partitioner,
                      const JobChoice& choice);

/// The same, as one of many: `memo` has what earlier ones found.
JobPlan make_job_plan(const JobRequest& request, const Partitioner& partitioner,
                      const JobChoice& choice, PlanMemo& memo);

/// Whether some update happens while micro-batches are in flight, which makes other results than
/// training without a pipeline. The chooser leaves such schedules to those who name them.
bool changes_results(const Schedule& schedule);

}  // namespace spillway::planner
