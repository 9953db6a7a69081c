#include "job_assembly.h"

#include <algorithm>

#include "job_costs.h"
#include "job_memory.h"
#include "refusing_call.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/host_bytes.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::planner {
namespace {

/// By rank. Working peaks come one after the other; relayed tensors and the rest of a rank's stages
/// do too at most, so the largest of its stages counts.
std::vector<HeldBytes> transients(const Schedule& schedule, const std::vector<HeldBytes>& stages) {
  std::vector<HeldBytes> ranks(schedule.rank_count());
  for (std::uint32_t replica = 0; replica < schedule.replica_count(); ++replica)
    for (std::uint32_t stage = 0; stage < schedule.stages; ++stage) {
      HeldBytes& held = ranks[schedule.rank_of(replica, stage)];
      const HeldBytes& of_stage = stages[stage];
      if (of_stage.working + of_stage.relayed <= held.working + held.relayed) continue;
      held.working = of_stage.working;
      held.relayed = of_stage.relayed;
    }
  return ranks;
}

/// What ranks keep free for transients of layers is there for those of the update.
void take_free_from_updates(const Schedule& schedule, const std::vector<HeldBytes>& stages,
                            ScheduleCosts& costs) {
  const std::vector<HeldBytes> ranks = transients(schedule, stages);
  for (std::uint32_t stage = 0; stage < schedule.stages; ++stage) {
    Bytes free = ranks[schedule.rank_of(0, stage)].working;
    for (std::uint32_t replica = 1; replica < schedule.replica_count(); ++replica)
      free = std::min(free, ranks[schedule.rank_of(replica, stage)].working);
    Bytes& peak = costs.stages[stage].update_peak;
    peak -= std::min(peak, free);
  }
}

/// What no action moves, on each rank: buffers and frozen parameters of all its stages are there,
/// beside each copy of a stage once.
void find_fixed(const JobRequest& request, JobPlan& plan) {
  const Schedule& actions = plan.actions;
  plan.memory.assign(actions.rank_count(), {});
  const WeightCopies copies(actions);
  const std::vector<HeldBytes> largest = transients(actions, plan.bytes_before);
  for (std::uint32_t rank = 0; rank < plan.memory.size(); ++rank)
    plan.memory[rank].held = largest[rank];
  for (std::uint32_t copy = 0; copy < copies.size(); ++copy) {
    const std::uint32_t stage = copies[copy].stage;
    HeldBytes& held = plan.memory[copies[copy].rank].held;
    held.weights += plan.stages[stage].parameters - plan.costs.stages[stage].weights;
    held.buffers += plan.bytes_before[stage].buffers;
  }
  for (RankMemory& rank : plan.memory) {
    rank.held.reserved = request.reserved;
    rank.fixed = rank.held.all();
  }
}

/// What actions move, and what goes with it, as it is at the peak of a rank.
void add_moved(const RankTiming& timing, HeldBytes& held) {
  held.weights += timing.peak_weights;
  held.gradients = timing.gradients;
  held.optimizer = timing.optimizer_states;
  held.working += timing.peak_update;
  held.stash = timing.peak_memory - timing.peak_weights - timing.peak_update - timing.gradients -
               timing.optimizer_states;
}

void find_memory(const JobRequest& request, JobPlan& plan) {
  find_fixed(request, plan);
  const std::vector<Bytes> host = host_bytes(plan.actions, plan.costs.stages);
  for (std::uint32_t rank = 0; rank < plan.memory.size(); ++rank) {
    plan.memory[rank].peak = plan.timing.ranks[rank].peak_memory + plan.memory[rank].fixed;
    add_moved(plan.timing.ranks[rank], plan.memory[rank].held);
    plan.memory[rank].host = host[rank];
  }
  plan.bytes_after = bytes_after(plan);
}

/// The action lists with their messages, and with weights that come and go where they are parked.
Schedule actions_for(const JobRequest& request, const Schedule& compute,
                     const std::vector<StageEstimate>& stages, const ScheduleCosts& costs) {
  CommunicationOptions communication;
  communication.data_parallel = request.data_parallel;
  const SecondCopy second_copy = request.variant.second_copy;
  if (second_copy == SecondCopy::kSingleOwner) communication.copy_rule = CopyRule::kSingleOwner;
  Schedule lists = compute;
  const LayerIndex trained = leading_frozen_layers(request.chain);
  for (const StageEstimate& stage : stages)
    if (stage.last_layer < trained) ++lists.untrained_stages;
  Schedule actions = with_communication(lists, costs, communication);
  return second_copy == SecondCopy::kParked ? with_parked_weights(actions) : actions;
}

}  // namespace

std::uint32_t fullest_rank(const JobPlan& plan) {
  const auto fullest =
      std::max_element(plan.memory.begin(), plan.memory.end(),
                       [](const RankMemory& a, const RankMemory& b) { return a.peak < b.peak; });
  return static_cast<std::uint32_t>(fullest - plan.memory.begin());
}

std::optional<Refusal> lack_of_room(const JobRequest& request, const JobPlan& plan) {
  const std::uint32_t fullest = fullest_rank(plan);
  if (plan.peak() > request.device_memory)
    return Refusal{
        .cause = Refusal::Cause::kRoom,
        .sentence = message(
            "rank {} would hold {} at its peak and has {} (use more ranks or more memory{})",
            fullest, plan.peak(), request.device_memory,
            request.swap_bytes_per_second > 0.0 ? ", or fewer micro-batches"
                                                : ", fewer micro-batches, or a link to swap to"),
        .rank = fullest,
        .needed = plan.peak()};
  std::uint32_t swapping = 0;
  for (std::uint32_t rank = 0; rank < plan.memory.size(); ++rank)
    if (plan.memory[rank].host > plan.memory[swapping].host) swapping = rank;
  if (plan.memory[swapping].host <= request.host_memory) return std::nullopt;
  return Refusal{
      .sentence = message("rank {} would swap {} to its host, which has {} for it (give more host "
                          "memory, or more ranks)",
                          swapping, plan.memory[swapping].host, request.host_memory)};
}

OrRefusal<JobPlan> with_room(const JobRequest& request, OrRefusal<JobPlan> plan) {
  if (plan)
    if (auto lack = lack_of_room(request, *plan)) return std::move(*lack);
  return plan;
}

OrRefusal<JobPlan> simulated(const JobRequest& request, const Partitioner& partitioner,
                             const Schedule& compute, const SegmentCosts& costs,
                             const PartitionEstimate& estimate) {
  JobPlan plan;
  plan.partitioner = partitioner.name;
  plan.schedule = compute.name;
  plan.ranks = request.ranks;
  plan.data_parallel = request.data_parallel;
  plan.micro_batches = request.micro_batches;
  plan.device_memory = request.device_memory;
  plan.host_memory = request.host_memory;
  plan.stages = estimate.stages;
  plan.factors = costs.problem().factors;
  plan.seconds_per_micro_batch = estimate.seconds;
  plan.rounding_gap = estimate.rounding_gap;
  plan.bytes_before = bytes_before(request, costs, estimate);
  plan.costs = schedule_costs(request, costs, estimate);
  take_free_from_updates(compute, plan.bytes_before, plan.costs);
  OrRefusal<Schedule> actions =
      refusing([&] { return actions_for(request, compute, plan.stages, plan.costs); });
  if (!actions) return actions.refusal();
  plan.actions = std::move(*actions);
  return timed(request, std::move(plan));
}

JobPlan timed(const JobRequest& request, JobPlan plan) {
  plan.timing = time_schedule(plan.actions, plan.costs);
  plan.step_seconds = plan.timing.step_seconds;
  find_memory(request, plan);
  return plan;
}

}  // namespace spillway::planner
