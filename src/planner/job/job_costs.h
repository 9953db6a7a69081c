#pragma once

#include <vector>

#include "spillway/planner/job/job_plan.h"
#include "spillway/planner/job/job_request.h"
#include "spillway/planner/partition/partition_estimate.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/planner/schedule/refusal.h"
#include "spillway/schedule/schedule.h"

namespace spillway::job {

/// The result of a call to the partition library, which says by exceptions which requests make no
/// sense, and where a layer fits on no device. This is the one place where this library takes
/// exceptions for answers. Calls that must succeed, partitioners and simulations above all, do not
/// go through it, so that their faults are not read as "does not fit".
template <typename Call>
auto refusing(const Call& call) -> OrRefusal<decltype(call())> {
  try {
    return call();
  } catch (const ConfigError& error) {
    return Refusal{.cause = Refusal::Cause::kRequest, .sentence = error.what()};
  } catch (const PlanError& error) {
    return Refusal{.sentence = error.what()};
  }
}

/// The units of a stage.
partition::Segment segment_of(const partition::SegmentCosts& costs,
                              const partition::StageEstimate& stage, std::uint32_t index);

/// The cuts for stages that begin with these layers. Throws ConfigError for a stage that begins
/// between layers which stay together, and PlanError for stages that are none.
partition::Cuts cuts_at(const partition::SegmentCosts& costs,
                        const std::vector<partition::LayerIndex>& begins);

/// The cuts of the request's stages, or else of the partitioner.
OrRefusal<partition::Cuts> cuts_for(const JobRequest& request,
                                    const partition::Partitioner& partitioner,
                                    const partition::SegmentCosts& costs, CutMemo& memo);

/// What to cut for a schedule: a device per stage, with the stash and the copies of the weights
/// that the action lists hold. Of ranks with several stages each gets an equal share of the rank,
/// and what the rank holds in the mean. Throws ConfigError as check(PartitionProblem).
partition::PartitionProblem problem_for(const JobRequest& request,
                                        const schedule::Schedule& schedule);

/// A model cut into stages, with what each does about its memory.
struct CutModel {
  partition::SegmentCosts costs;
  partition::Cuts cuts;
  partition::PartitionEstimate estimate;
};

/// The same request for devices without an end of memory.
JobRequest unlimited(JobRequest request);

OrRefusal<partition::SegmentCosts> costs_of(const partition::PartitionProblem& problem);
/// The costs of `problem_for`.
OrRefusal<partition::SegmentCosts> costs_for(const JobRequest& request,
                                             const schedule::Schedule& schedule);

/// For how long the busiest rank computes in a step, when each stage takes so many seconds per
/// micro-batch: no step is faster.
double busiest_rank_seconds(const schedule::Schedule& schedule,
                            const std::vector<double>& stage_seconds);

/// What the schedule's simulator needs to know of the stages as they are cut, behind their swaps
/// and recomputation: stash is what stays on the device, beside what is swapped, and backward has
/// the time of what is recomputed.
planner_schedule::ScheduleCosts schedule_costs(const JobRequest& request,
                                               const partition::SegmentCosts& costs,
                                               const partition::PartitionEstimate& estimate);

/// What of a stash is the input of its stage, which stays when the rest is recomputed: the
/// largest share of all stages.
double largest_input_share(const partition::SegmentCosts& costs,
                           const partition::PartitionEstimate& estimate);

/// Of the stage's layers: `&ModelLayer::working_peak`, say.
Bytes largest_of(const partition::ModelChain& chain, const partition::StageEstimate& stage,
                 Bytes partition::ModelLayer::*figure);

}  // namespace spillway::job
