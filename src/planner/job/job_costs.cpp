#include "job_costs.h"

#include <algorithm>
#include <cmath>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/rank_memory.h"
#include "spillway/planner/schedule/refusal.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::job {
namespace {

Bytes rounded_up(double bytes) {
  return Bytes(static_cast<std::uint64_t>(std::ceil(std::max(0.0, bytes))));
}

double forward_seconds(const partition::ModelChain& chain, const partition::StageEstimate& stage) {
  double seconds = 0.0;
  for (partition::LayerIndex i = stage.first_layer; i <= stage.last_layer; ++i)
    seconds += chain.layers[i].forward_seconds;
  return seconds;
}

/// Of a stage: its layers, and what is recomputed. `all_trained` are bytes of parameters.
planner_schedule::StageCosts stage_costs(const JobRequest& request,
                                         const partition::SegmentCosts& costs,
                                         const partition::StageEstimate& stage,
                                         partition::Segment segment, double all_trained) {
  const partition::SegmentLoad load = costs.load(segment);
  planner_schedule::StageCosts result;
  result.forward_seconds = forward_seconds(request.chain, stage);
  const double backward = std::max(0.0, stage.raw_seconds - result.forward_seconds);
  // A profile does not tell the halves of a backward apart. What is recomputed must be there before
  // the first of them.
  result.input_gradient_seconds = backward / 2 + stage.recompute_seconds;
  result.weight_gradient_seconds = backward - backward / 2;
  // Actions recompute a stage as a whole, not the layers that its cuts have chosen.
  result.recompute_seconds = result.forward_seconds;
  const double trained = costs.trained_bytes(segment.first, segment.end);
  if (all_trained > 0.0) result.step_seconds = request.update_seconds * trained / all_trained;
  const double kept = static_cast<double>(stage.memory.count()) - load.fixed_bytes;
  // Down: all of them together must not exceed what the partition's simulator has counted.
  result.stash = Bytes(static_cast<std::uint64_t>(std::max(0.0, kept / load.in_flight)));
  result.swapped = stage.swapped;
  result.boundary = rounded_up(costs.crossing_bytes(segment.end));
  result.weights = rounded_up(trained);
  const Bytes states = rounded_up(costs.static_bytes(segment.first, segment.end) -
                                  planner_schedule::count_of(stage.parameters) -
                                  costs.buffer_bytes(segment.first, segment.end));
  // Gradients are as large as weights; where the states are less, there is no more.
  result.gradients = std::min(states, result.weights);
  result.optimizer_state = states - result.gradients;
  result.update_peak = largest_of(request.chain, stage, &partition::ModelLayer::update_peak);
  return result;
}

/// Of two copies with a single owner: both have weights and gradients, one has optimizer states.
/// The mean of all layers.
double owned_once(const partition::ModelChain& chain) {
  double gradients = 0.0;
  double states = 0.0;
  for (const partition::ModelLayer& layer : chain.layers) {
    if (layer.is_frozen) continue;
    const auto parameters = static_cast<double>(layer.parameters.count());
    gradients += parameters * std::min(1.0, layer.static_ratio - 1.0);
    states += parameters * (layer.static_ratio - 1.0);
  }
  return states > 0.0 ? (states + gradients) / states : 1.0;
}

/// What the choice for second copies makes of them, by the stages that have one. They come back
/// from the host for the steps alone, when stashes are few.
void apply_second_copy(const JobRequest& request, std::uint32_t chunks,
                       partition::PartitionProblem& problem) {
  const double owned = owned_once(request.chain);
  for (partition::StageDevice& device : problem.devices) {
    schedule::HeldCounts& held = device.held;
    const bool has_two = held.state_copies > 1.0;
    if (request.variant.second_copy == SecondCopy::kParked && (has_two || chunks > 1))
      // Of the two copies one is on the host at any time but for the steps.
      held.weight_versions /= 2.0;
    if (request.variant.second_copy == SecondCopy::kSingleOwner && has_two)
      held.state_copies = owned;
  }
}

/// The unit at which a stage begins; units are layers, or layers that stay together.
std::uint32_t unit_of(const partition::SegmentCosts& costs, partition::LayerIndex layer) {
  std::uint32_t low = 0;
  std::uint32_t high = costs.units();
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (costs.first_layer(middle) < layer)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

bool turns_back_with_stashes(const std::vector<schedule::Action>& list) {
  std::int64_t held = 0;
  bool is_behind_backward = false;
  for (const schedule::Action& action : list) {
    if (action.kind == schedule::ActionKind::kForward) {
      if (is_behind_backward && held > 0) return true;
      is_behind_backward = false;
      ++held;
    } else if (schedule::makes_input_gradient(action.kind)) {
      is_behind_backward = true;
      --held;
    }
  }
  return false;
}

/// By stage, whether its swaps use one direction of the host link at a time. So they do on ranks
/// that are through with all backwards before they turn back to forwards, when nothing is left to
/// bring in while stashes leave: GPipe, GEMS, the last rank of 1F1B, any rank whose micro-batches
/// all fit in flight. One such rank of a stage is enough.
std::vector<bool> half_duplex_stages(const schedule::Schedule& compute) {
  std::vector<bool> by_stage(compute.stages, false);
  std::vector<bool> by_rank;
  for (const auto& list : compute.ranks) by_rank.push_back(!turns_back_with_stashes(list));
  for (std::uint32_t replica = 0; replica < compute.replica_count(); ++replica)
    for (std::uint32_t stage = 0; stage < compute.stages; ++stage)
      if (by_rank[compute.rank_of(replica, stage)]) by_stage[stage] = true;
  return by_stage;
}

}  // namespace

partition::Segment segment_of(const partition::SegmentCosts& costs,
                              const partition::StageEstimate& stage, std::uint32_t index) {
  return {unit_of(costs, stage.first_layer), unit_of(costs, stage.last_layer + 1), index};
}

partition::Cuts cuts_at(const partition::SegmentCosts& costs,
                        const std::vector<partition::LayerIndex>& begins) {
  partition::Cuts cuts;
  for (const partition::LayerIndex first : begins) {
    cuts.push_back(unit_of(costs, first));
    if (costs.first_layer(cuts.back()) != first)
      throw ConfigError("stage {} begins with layer {}, which stays together with the one before "
                        "it (plan anew)",
                        cuts.size() - 1, first);
  }
  cuts.push_back(costs.units());
  partition::check(costs, cuts);
  return cuts;
}

OrRefusal<partition::Cuts> cuts_for(const JobRequest& request,
                                    const partition::Partitioner& partitioner,
                                    const partition::SegmentCosts& costs, CutMemo& memo) {
  const std::vector<partition::LayerIndex>& begins = request.stages.begins;
  if (!begins.empty()) return refusing([&] { return cuts_at(costs, begins); });
  const std::optional<partition::Cuts>& found = memo.cuts(partitioner, costs);
  if (!found) return no_plan("{}", partitioner.refusal(costs));
  return *found;
}

partition::PartitionProblem problem_for(const JobRequest& request,
                                        const schedule::Schedule& schedule) {
  const std::uint32_t ranks = schedule.rank_count();
  const std::uint32_t chunks = schedule.stages / ranks;
  if (chunks * ranks != schedule.stages)
    throw ConfigError("{} has {} stages on {} ranks; a plan needs equally many on each",
                      schedule.name, schedule.stages, ranks);
  partition::PartitionProblem problem;
  problem.chain = request.chain;
  partition::StageDevice device;
  device.memory = request.device_memory;
  device.reserved = request.reserved;
  // Cuts may count on less than the link has, see `plan_under_cuts`.
  if (request.variant.memory_reduction != JobMemoryReduction::kRecompute)
    device.swap_rate = request.swap_rate * request.stage_swap_share;
  problem.devices.assign(ranks, device);
  // Between neighbours. `interleaved` adds the way from the last one back to the first.
  problem.links.assign(ranks - 1, request.link);
  if (chunks > 1) problem = partition::interleaved(problem, chunks);
  const std::vector<schedule::HeldCounts> held = planner_schedule::stage_factors(schedule);
  for (std::uint32_t stage = 0; stage < schedule.stages; ++stage)
    problem.devices[stage].held = held[stage];
  apply_second_copy(request, chunks, problem);
  // One direction after the other leaves half of the time for each.
  const std::vector<bool> is_half_duplex = half_duplex_stages(schedule);
  for (std::uint32_t stage = 0; stage < schedule.stages; ++stage)
    if (is_half_duplex[stage])
      problem.devices[stage].swap_rate = problem.devices[stage].swap_rate / 2.0;
  return problem;
}

JobRequest unlimited(JobRequest request) {
  request.device_memory = partition::kNoLimit;
  return request;
}

OrRefusal<partition::SegmentCosts> costs_of(const partition::PartitionProblem& problem) {
  return refusing([&] { return partition::SegmentCosts(problem); });
}

OrRefusal<partition::SegmentCosts> costs_for(const JobRequest& request,
                                             const schedule::Schedule& schedule) {
  return refusing([&] { return partition::SegmentCosts(problem_for(request, schedule)); });
}

planner_schedule::ScheduleCosts schedule_costs(const JobRequest& request,
                                               const partition::SegmentCosts& costs,
                                               const partition::PartitionEstimate& estimate) {
  planner_schedule::ScheduleCosts result;
  result.peer = request.link;
  result.reduce = request.reduce_link.value_or(request.link);
  result.shared_sums = request.shared_sums;
  if (!request.swap_rate.is_none()) result.host.rate = request.swap_rate;
  // Known before the first stage is made: the time of the optimizer is shared by trained bytes.
  double all_trained = 0.0;
  for (std::uint32_t k = 0; k < estimate.stages.size(); ++k) {
    const partition::Segment segment = segment_of(costs, estimate.stages[k], k);
    all_trained += costs.trained_bytes(segment.first, segment.end);
  }
  for (std::uint32_t k = 0; k < estimate.stages.size(); ++k) {
    const partition::StageEstimate& stage = estimate.stages[k];
    const partition::Segment segment = segment_of(costs, stage, k);
    result.stages.push_back(stage_costs(request, costs, stage, segment, all_trained));
  }
  return result;
}

double busiest_rank_seconds(const schedule::Schedule& schedule,
                            const std::vector<double>& stage_seconds) {
  std::vector<double> ranks(schedule.rank_count(), 0.0);
  for (std::uint32_t replica = 0; replica < schedule.replica_count(); ++replica)
    for (std::uint32_t stage = 0; stage < schedule.stages; ++stage)
      ranks[schedule.rank_of(replica, stage)] += stage_seconds[stage] * schedule.micro_batches;
  return *std::max_element(ranks.begin(), ranks.end());
}

double largest_input_share(const partition::SegmentCosts& costs,
                           const partition::PartitionEstimate& estimate) {
  double share = 0.0;
  for (std::uint32_t k = 0; k < estimate.stages.size(); ++k) {
    const partition::StageEstimate& stage = estimate.stages[k];
    const partition::Segment segment = segment_of(costs, stage, k);
    const double stash = costs.load(segment).stash_bytes;
    const double input = costs.crossing_bytes(segment.first);
    if (stash > 0.0) share = std::max(share, std::min(1.0, input / stash));
  }
  return share;
}

Bytes largest_of(const partition::ModelChain& chain, const partition::StageEstimate& stage,
                 Bytes partition::ModelLayer::*figure) {
  Bytes largest;
  for (partition::LayerIndex i = stage.first_layer; i <= stage.last_layer; ++i)
    largest = std::max(largest, chain.layers[i].*figure);
  return largest;
}

}  // namespace spillway::job
