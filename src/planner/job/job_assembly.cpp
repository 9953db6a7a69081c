#include "job_assembly.h"

#include <algorithm>
#include <cmath>

#include "job_costs.h"
#include "spillway/base/error.h"
#include "spillway/base/sizes_apart.h"
#include "spillway/planner/schedule/rank_memory.h"
#include "spillway/planner/schedule/refusal.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::job {
namespace {

Bytes whole(double bytes) {
  return Bytes(static_cast<std::uint64_t>(std::llround(std::max(0.0, bytes))));
}

/// What stages hold before swaps and recomputation of stashes, as the cuts count it.
std::vector<HeldBytes> bytes_before(const JobRequest& request, const partition::SegmentCosts& costs,
                                    const partition::PartitionEstimate& estimate) {
  std::vector<HeldBytes> all;
  for (std::uint32_t k = 0; k < estimate.stages.size(); ++k) {
    const partition::StageEstimate& stage = estimate.stages[k];
    const schedule::HeldCounts& held = costs.problem().devices[k].held;
    const partition::Segment segment = segment_of(costs, stage, k);
    const partition::SegmentLoad load = costs.load(segment);
    const double without_relayed = costs.load(segment, partition::Borders::kNone).fixed_bytes;
    const double buffers = costs.buffer_bytes(segment.first, segment.end);
    const Bytes states = whole(costs.static_bytes(segment.first, segment.end) - buffers -
                               planner_schedule::count_of(stage.parameters));
    HeldBytes bytes;
    const double all_states = held.state_copies * planner_schedule::count_of(states);
    // Whoever has a copy has its gradients, also where one owner has the states.
    const double gradients =
        std::ceil(held.state_copies - 1e-9) *  // Shares of ranks need not sum up to the last bit.
        std::min(planner_schedule::count_of(states),
                 costs.trained_bytes(segment.first, segment.end));
    bytes.gradients = whole(std::min(gradients, all_states));
    bytes.optimizer = whole(all_states) - bytes.gradients;
    bytes.stash = whole(load.in_flight * load.stash_bytes);
    bytes.working = largest_of(request.chain, stage, &partition::ModelLayer::working_peak);
    bytes.relayed = whole(load.fixed_bytes - without_relayed);
    bytes.reserved = request.reserved;
    bytes.buffers = whole(buffers);
    // As the cuts have them, which see the largest working peak of a rank with each of its stages.
    const Bytes others =
        bytes.gradients + bytes.optimizer + bytes.buffers + costs.problem().devices[k].reserved +
        largest_of(costs.problem().chain, stage, &partition::ModelLayer::working_peak);
    bytes.weights = whole(without_relayed - planner_schedule::count_of(others));
    all.push_back(bytes);
  }
  return all;
}

/// The same with what plan.actions hold of plan.costs' stashes.
std::vector<HeldBytes> bytes_after(const JobPlan& plan) {
  std::vector<HeldBytes> all = plan.bytes_before;
  const std::vector<schedule::HeldCounts> held =
      planner_schedule::stage_factors(plan.actions, plan.costs.shares);
  for (std::size_t k = 0; k < all.size(); ++k)
    all[k].stash =
        whole(held[k].in_flight * static_cast<double>(plan.costs.stages[k].stash.count()));
  return all;
}

/// By rank. Working peaks come one after the other; relayed tensors and the rest of a rank's stages
/// do too at most, so the largest of its stages counts.
std::vector<HeldBytes> transients(const schedule::Schedule& schedule,
                                  const std::vector<HeldBytes>& stages) {
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
void take_free_from_updates(const schedule::Schedule& schedule,
                            const std::vector<HeldBytes>& stages,
                            planner_schedule::ScheduleCosts& costs) {
  const std::vector<HeldBytes> ranks = transients(schedule, stages);
  for (std::uint32_t stage = 0; stage < schedule.stages; ++stage) {
    Bytes free = ranks[schedule.rank_of(0, stage)].working;
    for (std::uint32_t replica = 1; replica < schedule.replica_count(); ++replica)
      free = std::min(free, ranks[schedule.rank_of(replica, stage)].working);
    Bytes& peak = costs.stages[stage].update_peak;
    // At an update no layer runs, so its transients find the room of those of layers.
    peak -= std::min(peak, free);
  }
}

/// What no action moves, on each rank: buffers and frozen parameters of all its stages are there,
/// beside each copy of a stage once.
void find_fixed(const JobRequest& request, JobPlan& plan) {
  const schedule::Schedule& actions = plan.actions;
  plan.memory.assign(actions.rank_count(), {});
  const schedule::WeightCopies copies(actions);
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
    // Once for a rank, whatever the number of its stages.
    rank.held.reserved = request.reserved;
    rank.fixed = rank.held.all();
  }
}

/// What actions move, and what goes with it, as it is at the peak of a rank.
void add_moved(const planner_schedule::RankTiming& timing, HeldBytes& held) {
  held.weights += timing.peak_weights;
  // Whole, whenever the peak is: gradients and states are there from the begin to the end.
  held.gradients = timing.gradients;
  held.optimizer = timing.optimizer_states;
  held.working += timing.peak_update;
  held.stash = timing.peak_memory - timing.peak_weights - timing.peak_update - timing.gradients -
               timing.optimizer_states;
}

void find_memory(const JobRequest& request, JobPlan& plan) {
  find_fixed(request, plan);
  const std::vector<Bytes> host = planner_schedule::host_bytes(plan.actions, plan.costs.stages);
  for (std::uint32_t rank = 0; rank < plan.memory.size(); ++rank) {
    plan.memory[rank].peak = plan.timing.ranks[rank].peak_memory + plan.memory[rank].fixed;
    add_moved(plan.timing.ranks[rank], plan.memory[rank].held);
    plan.memory[rank].host = host[rank];
  }
  plan.bytes_after = bytes_after(plan);
}

/// The action lists of compute, which know by that to which stages no gradient is sent.
schedule::Schedule with_untrained_stages(schedule::Schedule compute,
                                         const partition::ModelChain& chain,
                                         const std::vector<partition::StageEstimate>& stages) {
  const partition::LayerIndex trained = partition::leading_frozen_layers(chain);
  for (const partition::StageEstimate& stage : stages)
    if (stage.last_layer < trained) ++compute.untrained_stages;
  return compute;
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
  if (plan.peak() > request.device_memory) {
    const SizesApart sizes = sizes_apart(plan.peak(), request.device_memory);
    return Refusal{
        .cause = Refusal::Cause::kRoom,
        .sentence = message(
            "rank {} would hold {} at its peak and has {} (use more ranks or more memory{})",
            fullest, sizes.first, sizes.second,
            !request.swap_rate.is_none()
                ? request.host_memory == partition::kNoLimit
                      ? ", or fewer micro-batches"
                      : ", fewer micro-batches, or more --host-memory"
                : ", fewer micro-batches, or a link to the host: --link-out and --link-in"),
        .rank = fullest,
        .needed = plan.peak()};
  }
  // Behind the devices: hosts hold what these give away, so their lack means something only where
  // devices suffice.
  std::uint32_t swapping = 0;
  for (std::uint32_t rank = 0; rank < plan.memory.size(); ++rank)
    if (plan.memory[rank].host > plan.memory[swapping].host) swapping = rank;
  if (plan.memory[swapping].host <= request.host_memory) return std::nullopt;
  const SizesApart sizes = sizes_apart(plan.memory[swapping].host, request.host_memory);
  return no_plan("rank {} would swap {} to its host, which has {} for it (give more --host-memory, "
                 "or more ranks)",
                 swapping, sizes.first, sizes.second);
}

OrRefusal<JobPlan> with_room(const JobRequest& request, OrRefusal<JobPlan> plan) {
  if (plan)
    if (auto lack = lack_of_room(request, *plan)) return std::move(*lack);
  return plan;
}

OrRefusal<JobPlan> simulated(const JobRequest& request, const partition::Partitioner& partitioner,
                             const schedule::Schedule& compute, const OrRefusal<CutModel>& model) {
  if (!model) return model.refusal();
  const auto& [costs, cuts, estimate] = *model;
  JobPlan plan;
  plan.partitioner = partitioner.name;
  plan.schedule = compute.name;
  plan.ranks = request.ranks;
  plan.data_parallel = request.data_parallel;
  plan.micro_batches = request.micro_batches;
  plan.device_memory = request.device_memory;
  plan.host_memory = request.host_memory;
  plan.stages = estimate.stages;
  // The cuts were made with these; action lists that swap whole stashes will hold less.
  for (const partition::StageDevice& device : costs.problem().devices)
    plan.held.push_back(device.held);
  plan.seconds_per_micro_batch = estimate.seconds;
  plan.rounding_gap = estimate.rounding_gap;
  plan.bytes_before = bytes_before(request, costs, estimate);
  plan.costs = schedule_costs(request, costs, estimate);
  take_free_from_updates(compute, plan.bytes_before, plan.costs);
  planner_schedule::CommunicationOptions communication;
  communication.data_parallel = request.data_parallel;
  const SecondCopy second_copy = request.variant.second_copy;
  if (second_copy == SecondCopy::kSingleOwner)
    communication.copy_rule = planner_schedule::CopyRule::kSingleOwner;
  OrRefusal<schedule::Schedule> actions = planner_schedule::with_communication(
      with_untrained_stages(compute, request.chain, plan.stages), plan.costs, communication);
  // Weights move beside what is there already, so they come last.
  if (actions && second_copy == SecondCopy::kParked)
    actions = planner_schedule::with_parked_weights(*actions);
  if (!actions) return actions.refusal();
  plan.actions = std::move(*actions);
  set_timing(request, planner_schedule::time_schedule(plan.actions, plan.costs), plan);
  return plan;
}

void set_timing(const JobRequest& request, planner_schedule::ScheduleTiming timing, JobPlan& plan) {
  plan.timing = std::move(timing);
  plan.step_seconds = plan.timing.step_seconds;
  find_memory(request, plan);
}

}  // namespace spillway::job
