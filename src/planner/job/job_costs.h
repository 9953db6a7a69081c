#pragma once

#include <vector>

#include "spillway/planner/job/job_request.h"
#include "spillway/planner/job/plan_memo.h"
#include "spillway/planner/job/refusal.h"
#include "spillway/planner/partition/partition_estimate.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/planner/schedule/rank_factors.h"
#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner {

/// The units of a stage.
Segment segment_of(const SegmentCosts& costs, const StageEstimate& stage, std::uint32_t index);

/// The cuts for stages that begin with these layers. Throws ConfigError for a stage that begins
/// between layers which stay together, and PlanError for stages that are none.
Cuts cuts_at(const SegmentCosts& costs, const std::vector<LayerIndex>& begins);

/// The cuts of the request's stages, or else of the partitioner.
OrRefusal<Cuts> cuts_for(const JobRequest& request, const Partitioner& partitioner,
                         const SegmentCosts& costs, CutMemo& memo);

/// What stages hold of stashes and copies of weights and states, counted over the action lists.
std::vector<StageFactors> held_factors(const Schedule& schedule, const StashShares& shares = {});

/// What to cut for a schedule: a device per stage, with the stash and the copies of the weights
/// that the action lists hold. Of ranks with several stages each gets an equal share of the rank,
/// and what the rank holds in the mean. Throws ConfigError as check(PartitionProblem).
PartitionProblem problem_for(const JobRequest& request, const Schedule& schedule);

/// The costs of that problem.
OrRefusal<SegmentCosts> costs_for(const JobRequest& request, const Schedule& schedule);

/// For how long the busiest rank computes in a step, when each stage takes so many seconds per
/// micro-batch: no step is faster.
double busiest_rank_seconds(const Schedule& schedule, const std::vector<double>& stage_seconds);

/// What the schedule's simulator needs to know of the stages as they are cut, behind their swaps
/// and recomputation: stash is what stays on the device, beside what is swapped, and backward has
/// the time of what is recomputed.
ScheduleCosts schedule_costs(const JobRequest& request, const SegmentCosts& costs,
                             const PartitionEstimate& estimate);

/// What of a stash is the input of its stage, which stays when the rest is recomputed: the
/// largest share of all stages.
double largest_input_share(const SegmentCosts& costs, const PartitionEstimate& estimate);

/// Of the stage's layers: `&ModelLayer::working_peak`, say.
Bytes largest_of(const ModelChain& chain, const StageEstimate& stage, Bytes ModelLayer::*figure);

}  // namespace spillway::planner
