#include "spillway/planner/job/job_plan.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "cut_planner.h"
#include "job_costs.h"
#include "search_limits.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/job_bound.h"
#include "spillway/planner/schedule/refusal.h"

namespace spillway::job {
namespace {

/// A request for a candidate with its layers in one order.
struct OrderedRequest {
  JobRequest request;
  layer_order::OrderChoice order;
  CutMemo* memo = nullptr;  ///< Of this order.
};

/// A partitioner, and the device memory for which it cuts.
struct CutChoice {
  const partition::Partitioner* partitioner = nullptr;
  Bytes device_memory;
};

/// What a stage holds is no matter where devices have no end.
bool is_endless(const partition::PartitionProblem& problem) {
  return std::all_of(
      problem.devices.begin(), problem.devices.end(),
      [](const partition::StageDevice& device) { return device.memory == partition::kNoLimit; });
}

std::vector<double> figures_of_first_stage(const partition::PartitionProblem& problem) {
  const schedule::HeldCounts& held = problem.devices.front().held;
  return {static_cast<double>(problem.devices.size()),
          static_cast<double>(problem.devices.front().reserved.count()), held.in_flight,
          held.weight_versions, held.state_copies};
}

std::vector<double> figures_of(const partition::PartitionProblem& problem,
                               bool with_what_stages_hold) {
  // The chain is the same for all that one memo keeps, so the rest of a problem is its key.
  std::vector<double> figures{static_cast<double>(problem.devices.size()),
                              problem.transfers_hide ? 1.0 : 0.0};
  for (const partition::StageDevice& device : problem.devices) {
    figures.push_back(device.slowdown);
    figures.push_back(static_cast<double>(device.memory.count()));
    if (with_what_stages_hold)
      figures.insert(figures.end(), {static_cast<double>(device.reserved.count()),
                                     device.swap_rate.bytes_per_second(), device.held.in_flight,
                                     device.held.weight_versions, device.held.state_copies});
  }
  for (const LinkCosts& link : problem.links)
    figures.insert(figures.end(), {link.rate.bytes_per_second(), link.latency_seconds});
  return figures;
}

/// The exact cuts for stages that send nothing while they compute; fractions of layers do here.
std::optional<partition::Cuts> cut_with_messages(const partition::SegmentCosts& costs) {
  partition::PartitionProblem problem = costs.problem();
  problem.transfers_hide = false;
  const partition::SegmentCosts slow(std::move(problem));
  auto solved = slow.stages() > kMostBalancedWithMessages ? partition::least_time_cuts(slow)
                                                          : partition::balanced_time_cuts(slow);
  if (!solved) return std::nullopt;
  return std::move(solved->cuts);
}

const partition::Partitioner kMessageCuts{"spillway", "least time of computing and messages", "",
                                          partition::Reading::kOurs, cut_with_messages};

/// The most ranks of a pipeline for whose stages there are layers; 0 where one has too many stages.
std::uint32_t most_ranks(const JobRequest& asked, const JobChoice& choice) {
  const std::size_t layers = asked.chain.layers.size();
  std::uint32_t ranks = asked.ranks / asked.data_parallel;
  if (ranks > layers) ranks = static_cast<std::uint32_t>(layers);  // Each has a stage at least.
  for (; ranks > 0; --ranks) {
    // So many that every schedule can share them: another refusal is of those that were asked for.
    const planner_schedule::ScheduleRequest request =
        schedule_request_for(*choice.generator, choice.variant, ranks, 4 * ranks);
    if (choice.generator->stage_count(request) <= layers && !choice.generator->fault(request))
      return ranks;
  }
  return 0;
}

/// More stages than layers.
Refusal too_many_stages(const JobRequest& asked, const JobChoice& choice, std::uint64_t stages) {
  const std::uint32_t ranks = most_ranks(asked, choice);
  const bool has_chunks = choice.variant.chunks > 1;
  const std::string fixed =
      ranks == 0
          ? has_chunks ? std::string("use fewer chunks") : std::string("use another schedule")
          : message("a pipeline has {} at most: use fewer --ranks or more --replicas{}",
                    counted(ranks, "rank"), has_chunks ? ", or fewer chunks" : "");
  return {.cause = Refusal::Cause::kRequest,
          .sentence = message("there are more stages than layers: {} for {} ({})", stages,
                              asked.chain.layers.size(), fixed)};
}

/// The action lists of compute. Counts are checked before they are made: they may be long.
/// `is_open`: nobody has named the schedule, and so none that changes results.
OrRefusal<schedule::Schedule> compute_of(const JobRequest& asked, const JobChoice& choice,
                                         bool is_open) {
  const planner_schedule::ScheduleGenerator& generator = *choice.generator;
  const planner_schedule::ScheduleRequest request =
      schedule_request_for(generator, choice.variant, asked.ranks / asked.data_parallel,
                           asked.micro_batches / asked.data_parallel);
  const std::uint64_t stages = generator.stage_count(request);
  if (stages > asked.chain.layers.size()) return too_many_stages(asked, choice, stages);
  if (auto fault = generator.fault(request))
    return Refusal{.cause = Refusal::Cause::kRequest, .sentence = std::move(*fault)};
  schedule::Schedule compute = generator.generate(request);
  if (is_open && changes_results(compute))
    return no_plan("it updates weights while micro-batches are in flight, which "
                   "changes results (name it with --schedule to have it)");
  if (choice.variant.second_copy == SecondCopy::kParked && asked.swap_rate.is_none())
    return no_plan("weights are parked on the host, and there is no link to it (name it with "
                   "--link-out and --link-in, or leave parked out)");
  return compute;
}

/// The best order for the stages of this schedule within the devices; if nothing fits, the best one
/// with unlimited memory: idle-time offload may make it fit.
OrRefusal<layer_order::OrderChoice> order_for(const JobRequest& asked,
                                              const schedule::Schedule& compute, CutMemo& memo) {
  const auto order_of = [&](const JobRequest& request) {
    return refusing([&] {
      return layer_order::OrderChoice(
          memo.order(problem_for(request, compute), request.order_effort));
    });
  };
  OrRefusal<layer_order::OrderChoice> order = order_of(asked);
  if (asked.device_memory == partition::kNoLimit || (order && order->seconds < partition::kNever))
    return order;
  return order_of(unlimited(asked));
}

/// The orders to plan in: that of the stages which are given; else the recorded one and, before it,
/// the best one, since that is chosen for its slowest stage, and a step is more than that.
OrRefusal<std::vector<OrderedRequest>> ordered(const JobRequest& asked,
                                               const schedule::Schedule& compute, PlanMemo& memo) {
  const auto in = [&](const layer_order::OrderChoice& order) {
    OrderedRequest made{asked, order, &memo.of(asked.micro_batches, order.layers)};
    if (!order.layers.empty())
      made.request.chain = layer_order::reordered(asked.chain, order.layers);
    return made;
  };
  layer_order::OrderChoice recorded;
  if (!asked.stages.begins.empty()) {
    recorded.layers = asked.stages.order;
    if (!recorded.layers.empty()) recorded.name = "given";
    return std::vector{in(recorded)};
  }
  if (!asked.chain.may_reorder) return std::vector{in(recorded)};
  const OrRefusal<layer_order::OrderChoice> best =
      order_for(asked, compute, memo.of(asked.micro_batches, {}));
  if (!best) return best.refusal();
  if (best->layers.empty()) return std::vector{in(*best)};
  recorded.seconds = recorded.recorded_seconds = best->recorded_seconds;
  recorded.bound_seconds = best->bound_seconds;
  recorded.downsets = best->downsets;
  return std::vector{in(*best), in(recorded)};
}

bool messages_take_time(const JobRequest& request) {
  return request.link.latency_seconds > 0.0 || !request.link.rate.is_unlimited();
}

/// Of what the request allows, what is tried with these action lists.
CutEffort effort_for(const JobRequest& request, const schedule::Schedule& compute) {
  if (request.cut_effort == CutEffort::kAll && stage_passes(compute) <= kMostPassesOfAllCuts)
    return CutEffort::kAll;
  return messages_take_time(request) ? CutEffort::kMessages : CutEffort::kExact;
}

/// The cuts to try after those of our partitioner: an exact cut has the fastest slowest stage, and
/// a step is more than that, for it fills and drains, and waits for messages. Where stages share
/// ranks, cuts for less memory may fit where those for all of it do not, or be faster.
std::vector<CutChoice> other_cuts(const JobRequest& request, const partition::Partitioner& ours,
                                  const schedule::Schedule& compute, CutEffort effort,
                                  CutMemo& memo) {
  const OrRefusal<partition::SegmentCosts> without_limit = costs_for(unlimited(request), compute);
  const OrRefusal<partition::SegmentCosts> within = costs_for(request, compute);
  const auto cuts_by = [&](const partition::Partitioner& partitioner,
                           const OrRefusal<partition::SegmentCosts>& costs) {
    const OrRefusal<partition::Cuts> cuts = costs ? cuts_for(request, partitioner, *costs, memo)
                                                  : OrRefusal<partition::Cuts>(partition::Cuts());
    return cuts ? *cuts : partition::Cuts();
  };
  // Ranks with more than one stage may come out too full, and are cut again then.
  const bool are_cut_once =
      request.device_memory == partition::kNoLimit ||
      (compute.stages == compute.rank_count() && compute.replica_count() == 1);
  // A plan starts from these two, so partitioners that agree on both lead to the same one.
  std::set<std::pair<partition::Cuts, partition::Cuts>> seen{
      {cuts_by(ours, without_limit), cuts_by(ours, within)}};
  std::vector<CutChoice> others;
  const auto add = [&](const partition::Partitioner& other) {
    const bool is_new = seen.insert({cuts_by(other, without_limit), cuts_by(other, within)}).second;
    if (is_new || !are_cut_once) others.push_back({&other, request.device_memory});
  };
  if (messages_take_time(request)) add(kMessageCuts);
  if (effort != CutEffort::kAll) return others;
  for (const partition::Partitioner& other : partition::partitioners().subspan(1)) add(other);
  const bool shares_ranks = compute.stages > compute.rank_count();
  if (!shares_ranks || request.device_memory == partition::kNoLimit ||
      stage_passes(compute) > kMostPassesForLess)
    return others;
  for (const std::uint64_t percent : {90U, 80U, 70U, 60U})
    for (const partition::Partitioner& other : partition::partitioners())
      others.push_back({&other, request.device_memory * percent / 100});
  return others;
}

/// The fastest step under the cuts of the partitioner and, where that is ours, under all those that
/// `cut_effort` names, with the layers as they stand. The reason of the first cuts counts.
OrRefusal<JobPlan> under_any_cuts(const JobRequest& request,
                                  const partition::Partitioner& partitioner,
                                  const schedule::Schedule& compute, IncumbentSeconds incumbent,
                                  CutMemo& memo) {
  OrRefusal<JobPlan> best = plan_under_cuts(request, partitioner, compute, incumbent, memo);
  if (partitioner.reading != partition::Reading::kOurs || request.cut_effort == CutEffort::kExact ||
      !request.stages.begins.empty())
    return best;
  if (best ? !is_faster(best->step_seconds / kMostGainOfCuts, incumbent.deferred)
           : best.refusal().is_given_up())
    return best;  // No cuts make up for that.
  // What the first cuts had to beat leaves out all that other cuts may gain.
  incumbent.all = incumbent.deferred = kNoTime;
  if (best) incumbent.cuts = best->step_seconds;
  const CutEffort effort = effort_for(request, compute);
  for (const CutChoice& each : other_cuts(request, partitioner, compute, effort, memo)) {
    JobRequest other = request;
    other.device_memory = each.device_memory;
    OrRefusal<JobPlan> plan = plan_under_cuts(other, *each.partitioner, compute, incumbent, memo);
    if (!plan || (best && !is_faster(plan->step_seconds, best->step_seconds))) continue;
    best = std::move(plan);
    best->device_memory = request.device_memory;
    best->partitioner = partitioner.name;
    incumbent.cuts = best->step_seconds;
  }
  if (best) best->cuts_tried = effort;
  return best;
}

/// The faster one of two plans, the second one of equals. Of two refusals the second one, unless
/// the first one is deferred and so may become a plan.
OrRefusal<JobPlan> better_of(OrRefusal<JobPlan> first, OrRefusal<JobPlan> second) {
  const bool is_first = second ? first && first->step_seconds < second->step_seconds
                               : first || first.refusal().cause == Refusal::Cause::kDeferred;
  return is_first ? std::move(first) : std::move(second);
}

/// Whether a candidate is also planned without swaps of stages: with a link, cuts and orders are
/// made for swaps, for which action lists may leave too little time, and hosts too little room.
bool may_be_faster_without_swaps(const JobRequest& asked) {
  const auto& kind = asked.variant.memory_reduction;
  return !asked.swap_rate.is_none() && asked.device_memory != partition::kNoLimit &&
         (!kind || kind == JobMemoryReduction::kStages);
}

}  // namespace

const layer_order::OrderChoice& CutMemo::order(const partition::PartitionProblem& problem,
                                               const layer_order::OrderEffort& effort) {
  std::pair key{effort.steps, figures_of(problem, !is_endless(problem))};
  const auto known = orders_.find(key);
  if (known != orders_.end()) return known->second;
  return orders_.emplace(std::move(key), layer_order::choose_order(problem, effort)).first->second;
}

const std::optional<partition::Cuts>& CutMemo::cuts(const partition::Partitioner& partitioner,
                                                    const partition::SegmentCosts& costs) {
  // Others look at what is held wherever they cut.
  const bool is_time_alone =
      partitioner.reading == partition::Reading::kOurs && is_endless(costs.problem());
  std::pair key{&partitioner, partitioner.sees_first_stage_alone
                                  ? figures_of_first_stage(costs.problem())
                                  : figures_of(costs.problem(), !is_time_alone)};
  const auto known = cuts_.find(key);
  if (known != cuts_.end()) return known->second;
  return cuts_.emplace(std::move(key), partitioner.find(costs)).first->second;
}

Bytes JobPlan::peak() const {
  Bytes most;
  for (const RankMemory& rank : memory) most = std::max(most, rank.peak);
  return most;
}

bool JobPlan::reduces_memory() const {
  return memory_reduction == JobMemoryReduction::kIdleOffload ||
         std::any_of(stages.begin(), stages.end(), [](const partition::StageEstimate& stage) {
           return stage.raw_memory > stage.memory;
         });
}

double JobPlan::micro_batches_per_second() const {
  return step_seconds > 0.0 ? micro_batches / step_seconds : 0.0;
}

/// Of the rank that has most of it.
static double longest(const planner_schedule::ScheduleTiming& timing,
                      double planner_schedule::RankTiming::*seconds) {
  double most = 0.0;
  for (const planner_schedule::RankTiming& rank : timing.ranks)
    most = std::max(most, rank.*seconds);
  return most;
}

double JobPlan::exposed_communication_seconds() const {
  return longest(timing, &planner_schedule::RankTiming::exposed_communication_seconds);
}

double JobPlan::exposed_swap_seconds() const {
  return longest(timing, &planner_schedule::RankTiming::exposed_swap_seconds);
}

bool changes_results(const schedule::Schedule& schedule) {
  if (schedule.weight_rule != schedule::WeightRule::kNewest) return true;
  for (const auto& actions : schedule.ranks)
    for (const schedule::Action& action : actions)
      if (action.kind == schedule::ActionKind::kStep &&
          action.micro_batch != schedule::kNoMicroBatch)
        return true;
  return false;
}

JobChoice choice_of(const JobPlan& plan) {
  return {&planner_schedule::schedule_generator_named(plan.schedule), plan.data_parallel,
          plan.variant, plan.micro_batches};
}

JobRequest request_for(const JobRequest& request, const JobChoice& choice) {
  JobRequest asked = request;
  asked.data_parallel = choice.data_parallel;
  asked.variant = choice.variant;
  asked.cut_effort = std::min(request.cut_effort, choice.cut_effort);
  if (choice.micro_batches != 0) asked.micro_batches = choice.micro_batches;
  check(asked);
  const std::uint32_t micro_batches = most_micro_batches(asked);
  return with_micro_batches(std::move(asked), micro_batches);
}

OrRefusal<JobPlan> plan_choice(const JobRequest& request, const partition::Partitioner& partitioner,
                               const JobChoice& choice, PlanMemo& memo) {
  OrRefusal<JobRequest> asked = refusing([&] { return request_for(request, choice); });
  if (!asked) return asked.refusal();
  const bool is_open = request.schedule == kAnySchedule;
  const OrRefusal<schedule::Schedule> compute = compute_of(*asked, choice, is_open);
  if (!compute) return compute.refusal();
  OrRefusal<JobPlan> best = Refusal{};
  IncumbentSeconds incumbent = choice.incumbent;
  for (const bool may_swap : {true, false}) {
    if (!may_swap) {
      if (!may_be_faster_without_swaps(*asked)) break;
      asked->variant.memory_reduction = JobMemoryReduction::kRecompute;
      // Without swaps it has to beat the plan with them.
      if (best) incumbent.all = incumbent.cuts = std::min(incumbent.all, best->step_seconds);
    }
    const OrRefusal<std::vector<OrderedRequest>> orders = ordered(*asked, *compute, memo);
    OrRefusal<JobPlan> found = orders ? Refusal{} : orders.refusal();
    IncumbentSeconds beat = incumbent;  // The second order has to beat the first one, too.
    for (std::size_t i = 0; orders && i < orders->size(); ++i) {
      const OrderedRequest& each = (*orders)[i];
      OrRefusal<JobPlan> plan =
          under_any_cuts(each.request, partitioner, *compute, beat, *each.memo);
      if (plan) {
        plan->order = each.order;
        for (double* seconds : {&beat.all, &beat.deferred, &beat.offload})
          *seconds = std::min(*seconds, plan->step_seconds);
      }
      found = better_of(std::move(found), std::move(plan));
    }
    // It is slow with unlimited memory, where nothing is swapped.
    if (may_swap && !found && found.refusal().is_given_up()) return found;
    const bool is_found = static_cast<bool>(found);
    if (may_swap || (found && (!best || is_faster(found->step_seconds, best->step_seconds))))
      best = std::move(found);
    // Its stages just swap nothing: the plan is still of the kind that was asked for.
    if (!may_swap && is_found && choice.variant.memory_reduction)
      best->memory_reduction = *choice.variant.memory_reduction;
  }
  if (!best) return best;
  best->variant = as_made(*choice.generator, choice.variant, *compute);
  best->batch = batch_of(request);
  best->bound_seconds = job_bound(request);
  return best;
}

}  // namespace spillway::job
