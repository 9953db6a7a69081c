#include "spillway/planner/job/job_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "job_costs.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"

namespace spillway::planner {
namespace {

void check_count(const char* what, std::uint32_t count) {
  if (count == 0 || count > kMostRanksOfJob)
    throw ConfigError("a job needs between 1 and {} {}, not {}", kMostRanksOfJob, what, count);
}

/// In bytes as people write them: of the figures of stages, which are per micro-batch.
Bytes times(Bytes bytes, double count) {
  return Bytes(
      static_cast<std::uint64_t>(std::ceil(static_cast<double>(bytes.count()) * count - 1e-6)));
}

/// Working peaks come one after the other; relayed tensors and the rest of a rank's stages do too
/// at most, so the largest of its stages counts.
std::vector<RankMemory> memory_of(const JobRequest& request, const JobPlan& plan) {
  std::vector<RankMemory> memory(plan.actions.rank_count());
  const Schedule& actions = plan.actions;
  std::vector<Bytes> fixed;
  for (const StageEstimate& stage : plan.stages) fixed.push_back(fixed_bytes(request.chain, stage));
  for (std::uint32_t replica = 0; replica < actions.replica_count(); ++replica)
    for (std::uint32_t stage = 0; stage < actions.stages; ++stage) {
      RankMemory& rank = memory[actions.rank_of(replica, stage)];
      rank.fixed = std::max(rank.fixed, fixed[stage]);
      rank.host += times(plan.stages[stage].swapped, plan.factors[stage].in_flight);
    }
  for (std::uint32_t rank = 0; rank < memory.size(); ++rank) {
    memory[rank].fixed += request.reserved;
    memory[rank].peak = plan.timing.ranks[rank].peak_memory + memory[rank].fixed;
  }
  return memory;
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

}  // namespace

void check(const JobRequest& request) {
  check(request.chain);
  check_count("ranks", request.ranks);
  check_count("micro-batches", request.micro_batches);
  if (request.groups != 0 && request.ranks % request.groups != 0)
    throw ConfigError("{} ranks do not split into {} equal groups; name a divisor of {}",
                      request.ranks, request.groups, request.ranks);
  if (request.groups != 0 && request.micro_batches % request.groups != 0)
    throw ConfigError("{} micro-batches do not split evenly over {} groups; name a multiple of {}",
                      request.micro_batches, request.groups, request.groups);
  if (!(request.update_seconds >= 0.0) || std::isinf(request.update_seconds))
    throw ConfigError("the optimizer takes {} s; times are finite and at least 0",
                      request.update_seconds);
  if (!(request.link.bytes_per_second > 0.0))
    throw ConfigError("the link between ranks carries {} bytes/s; give more than 0",
                      request.link.bytes_per_second);
  if (!(request.swap_bytes_per_second >= 0.0))
    throw ConfigError("the link to the host carries {} bytes/s; give 0 where nothing is swapped",
                      request.swap_bytes_per_second);
  if (request.schedule != kAnySchedule) schedule_generator_named(request.schedule);
  partitioner_named(request.partitioner);
}

double job_bound(const JobRequest& request) {
  const LayerIndex trained = first_trained(request.chain);
  double work = 0.0;
  double way = 0.0;
  double largest = 0.0;
  for (LayerIndex i = 0; i < request.chain.layers.size(); ++i) {
    const ModelLayer& layer = request.chain.layers[i];
    const double backward = i < trained ? 0.0 : layer.backward_seconds;
    work += layer.forward_seconds + backward;
    way += layer.forward_seconds + backward / 2;
    largest = std::max(largest, layer.forward_seconds + backward);
  }
  const std::uint32_t most_groups =
      request.groups != 0 ? request.groups : std::gcd(request.ranks, request.micro_batches);
  const double all = work * request.micro_batches + request.update_seconds;
  const double in_turn = largest * request.micro_batches / most_groups;
  return std::max({all / request.ranks, way, in_turn});
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

  const SegmentCosts costs(problem_for(request, compute));
  const PartitionEstimate estimate = judge(costs, partitioner.cut(costs));
  require_fit(request, estimate);

  JobPlan plan;
  plan.partitioner = partitioner.name;
  plan.schedule = generator.name;
  plan.ranks = request.ranks;
  plan.groups = groups;
  plan.micro_batches = request.micro_batches;
  plan.device_memory = request.device_memory;
  plan.stages = estimate.stages;
  plan.factors = costs.problem().factors;
  plan.seconds_per_micro_batch = estimate.seconds;
  plan.rounding_gap = estimate.rounding_gap;
  plan.costs = schedule_costs(request, costs, estimate);
  CommunicationOptions communication;
  communication.data_parallel = groups;
  plan.actions = with_communication(compute, plan.costs, communication);
  plan.timing = time_schedule(plan.actions, plan.costs);
  plan.step_seconds = plan.timing.step_seconds;
  plan.bound_seconds = job_bound(request);
  plan.memory = memory_of(request, plan);
  require_room(request, plan);
  return plan;
}

}  // namespace spillway::planner
