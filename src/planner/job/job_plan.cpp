#include "spillway/planner/job/job_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "job_costs.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"

namespace spillway::planner {
namespace {

/// In bytes as people write them: of the figures of stages, which are per micro-batch.
Bytes times(Bytes bytes, double count) {
  return Bytes(
      static_cast<std::uint64_t>(std::ceil(static_cast<double>(bytes.count()) * count - 1e-6)));
}

/// Working peaks come one after the other; relayed tensors and the rest of a rank's stages do too
/// at most, so the largest of its stages counts.
void find_fixed(const JobRequest& request, JobPlan& plan) {
  const Schedule& actions = plan.actions;
  plan.memory.assign(actions.rank_count(), {});
  std::vector<Bytes> fixed;
  for (const StageEstimate& stage : plan.stages) fixed.push_back(fixed_bytes(request.chain, stage));
  for (std::uint32_t replica = 0; replica < actions.replica_count(); ++replica)
    for (std::uint32_t stage = 0; stage < actions.stages; ++stage) {
      RankMemory& rank = plan.memory[actions.rank_of(replica, stage)];
      rank.fixed = std::max(rank.fixed, fixed[stage]);
    }
  for (RankMemory& rank : plan.memory) rank.fixed += request.reserved;
}

/// The most that actions of a rank have on the host at once, counted over its list.
Bytes swapped_by_actions(const JobPlan& plan, std::uint32_t rank) {
  Bytes now;
  Bytes most;
  for (const Action& action : plan.actions.ranks[rank]) {
    const Bytes stash = plan.costs.stages[action.stage].stash;
    if (action.kind == ActionKind::kSwapOut) now += stash;
    if (action.kind == ActionKind::kSwapIn) now -= stash;
    most = std::max(most, now);
  }
  return most;
}

void find_memory(const JobRequest& request, JobPlan& plan) {
  find_fixed(request, plan);
  const Schedule& actions = plan.actions;
  for (std::uint32_t rank = 0; rank < plan.memory.size(); ++rank) {
    plan.memory[rank].peak = plan.timing.ranks[rank].peak_memory + plan.memory[rank].fixed;
    plan.memory[rank].host = swapped_by_actions(plan, rank);
  }
  // What stages swap of each micro-batch is no action of the lists.
  for (std::uint32_t replica = 0; replica < actions.replica_count(); ++replica)
    for (std::uint32_t stage = 0; stage < actions.stages; ++stage)
      plan.memory[actions.rank_of(replica, stage)].host +=
          times(plan.stages[stage].swapped, plan.factors[stage].in_flight);
}

void require_room(const JobRequest& request, const JobPlan& plan) {
  std::uint32_t fullest = 0;
  std::uint32_t swapping = 0;
  for (std::uint32_t rank = 0; rank < plan.memory.size(); ++rank) {
    if (plan.memory[rank].peak > plan.memory[fullest].peak) fullest = rank;
    if (plan.memory[rank].host > plan.memory[swapping].host) swapping = rank;
  }
  if (plan.memory[fullest].peak > request.device_memory)
    throw PlanError("rank {} would hold {} at its peak and has {} (use more ranks or more memory, "
                    "fewer micro-batches, or a link to swap to)",
                    fullest, plan.memory[fullest].peak, request.device_memory);
  if (plan.memory[swapping].host > request.host_memory)
    throw PlanError("rank {} would swap {} to its host, which has {} for it (give more host "
                    "memory, or more ranks)",
                    swapping, plan.memory[swapping].host, request.host_memory);
}

void require_fit(const JobRequest& request, const PartitionEstimate& estimate) {
  if (estimate.fits) return;
  const auto is_too_full = [](const StageEstimate& stage) { return std::isinf(stage.seconds); };
  const auto stage = std::find_if(estimate.stages.begin(), estimate.stages.end(), is_too_full);
  const auto index = stage - estimate.stages.begin();
  throw PlanError(
      "stage {}, layers {} to {}, takes {} before swaps and recomputation, which cannot "
      "bring it below {} (let the partitioner 'spillway' cut, or use more ranks or "
      "more memory)",
      index, stage->first_layer, stage->last_layer, stage->raw_memory, request.device_memory);
}

/// All that both ways of relief have in common, once cuts and their estimate are there.
JobPlan started(const JobRequest& request, const Partitioner& partitioner, const Schedule& compute,
                const SegmentCosts& costs, const PartitionEstimate& estimate) {
  JobPlan plan;
  plan.partitioner = partitioner.name;
  plan.schedule = compute.name;
  plan.ranks = request.ranks;
  plan.groups = request.groups;
  plan.micro_batches = request.micro_batches;
  plan.device_memory = request.device_memory;
  plan.stages = estimate.stages;
  plan.factors = costs.problem().factors;
  plan.seconds_per_micro_batch = estimate.seconds;
  plan.rounding_gap = estimate.rounding_gap;
  plan.costs = schedule_costs(request, costs, estimate);
  CommunicationOptions communication;
  communication.data_parallel = request.groups;
  plan.actions = with_communication(compute, plan.costs, communication);
  return plan;
}

JobPlan finished(const JobRequest& request, JobPlan plan) {
  plan.timing = time_schedule(plan.actions, plan.costs);
  plan.step_seconds = plan.timing.step_seconds;
  find_memory(request, plan);
  require_room(request, plan);
  return plan;
}

JobPlan relieved_by_stage(const JobRequest& request, const Partitioner& partitioner,
                          const Schedule& compute) {
  const SegmentCosts costs(problem_for(request, compute));
  const PartitionEstimate estimate = judge(costs, partitioner.cut(costs));
  require_fit(request, estimate);
  return finished(request, started(request, partitioner, compute, costs, estimate));
}

/// Lists compute whole stages again, so every layer must be one that may run again.
bool may_recompute_all(const ModelChain& chain) {
  return std::all_of(chain.layers.begin(), chain.layers.end(), [](const ModelLayer& layer) {
    return layer.stash == Bytes(0) ||
           std::any_of(layer.recompute.begin(), layer.recompute.end(),
                       [](const RecomputePoint& point) { return point.stash == Bytes(0); });
  });
}

/// Cuts as if there were room, and whole stashes that leave while a rank computes something else.
JobPlan relieved_in_windows(const JobRequest& request, const Partitioner& partitioner,
                            const Schedule& compute) {
  JobRequest roomy = request;
  roomy.device_memory = kNoLimit;
  const SegmentCosts costs(problem_for(roomy, compute));
  const PartitionEstimate estimate = judge(costs, partitioner.cut(costs));
  JobPlan plan = started(request, partitioner, compute, costs, estimate);
  plan.relief = JobRelief::kWindows;
  find_fixed(request, plan);
  Bytes fixed;
  for (const RankMemory& rank : plan.memory) fixed = std::max(fixed, rank.fixed);
  if (fixed >= request.device_memory)
    throw PlanError("a rank holds {} before its first action, and its device has {}", fixed,
                    request.device_memory);
  plan.costs.memory = request.device_memory - fixed;
  plan.costs.shares.input = largest_input_share(costs, estimate);
  plan.actions = may_recompute_all(request.chain) ? with_memory_fitted(plan.actions, plan.costs)
                                                  : with_swapped_stashes(plan.actions, plan.costs);
  return finished(request, std::move(plan));
}

/// The search for windows runs the referee some hundred times.
bool may_use_windows(const JobRequest& request, const Schedule& compute) {
  constexpr std::uint64_t kMostCells = 1024;
  return request.swap_bytes_per_second > 0.0 && request.device_memory != kNoLimit &&
         compute.all_micro_batches() * compute.stages <= kMostCells;
}

bool is_relieved(const JobPlan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(),
                     [](const StageEstimate& stage) { return stage.raw_memory > stage.memory; });
}

/// With the faster of both kinds of relief, where both are open.
JobPlan relieved(const JobRequest& asked, const Partitioner& partitioner, const Schedule& compute) {
  if (!may_use_windows(asked, compute)) return relieved_by_stage(asked, partitioner, compute);

  std::optional<JobPlan> by_stage;
  std::string reason;
  try {
    by_stage = relieved_by_stage(asked, partitioner, compute);
    if (!is_relieved(*by_stage)) return std::move(*by_stage);
  } catch (const PlanError& error) {
    reason = error.what();
  }
  try {
    JobPlan by_window = relieved_in_windows(asked, partitioner, compute);
    if (!by_stage || by_window.step_seconds < by_stage->step_seconds) return by_window;
  } catch (const PlanError&) {
    if (!by_stage) throw PlanError("{}", reason);
  }
  return std::move(*by_stage);
}

}  // namespace

std::string_view to_string(JobRelief relief) {
  return relief == JobRelief::kStages ? "stages" : "windows";
}

Bytes JobPlan::peak() const {
  Bytes most;
  for (const RankMemory& rank : memory) most = std::max(most, rank.peak);
  return most;
}

double JobPlan::exposed_communication_seconds() const {
  double most = 0.0;
  for (const RankTiming& rank : timing.ranks)
    most = std::max(most, rank.exposed_communication_seconds);
  return most;
}

JobPlan make_job_plan(const JobRequest& request, const Partitioner& partitioner,
                      const ScheduleGenerator& generator, std::uint32_t groups) {
  JobRequest asked = request;
  asked.groups = groups;
  check(asked);
  ScheduleRequest lists;
  lists.ranks = request.ranks / groups;
  lists.micro_batches = request.micro_batches / groups;
  lists.slots = (lists.ranks + 1) / 2;  // Half of what 1F1B holds at its most.
  const Schedule compute = generator.generate(lists);
  JobPlan plan = relieved(asked, partitioner, compute);
  plan.bound_seconds = job_bound(request);
  return plan;
}

}  // namespace spillway::planner
