#include "spillway/planner/job/job_plan.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "job_costs.h"
#include "job_memory_reduction.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/job_bound.h"
#include "step_choice.h"

namespace spillway::planner {
namespace {

/// The best order for the stages of this schedule within the devices; if nothing fits, the best one
/// with unlimited memory: idle-time offload may make it fit.
OrderChoice order_for(const JobRequest& asked, const Schedule& compute, CutMemo& memo) {
  try {
    const OrderChoice& order = memo.order(problem_for(asked, compute), asked.order_effort);
    if (order.seconds < kNoLink || asked.device_memory == kNoLimit) return order;
  } catch (const Error&) {
    if (asked.device_memory == kNoLimit) throw;
  }
  JobRequest unlimited = asked;
  unlimited.device_memory = kNoLimit;
  return memo.order(problem_for(unlimited, compute), asked.order_effort);
}

/// In the order that goes with stages which are there already.
JobPlan as_given(const JobRequest& asked, const Partitioner& partitioner, const Schedule& compute,
                 PlanMemo& memo) {
  JobRequest moved = asked;
  moved.chain = reordered(asked.chain, asked.stages.order);
  JobPlan plan = with_memory_reduction(moved, partitioner, compute, {},
                                       memo.of(asked.micro_batches, asked.stages.order));
  plan.order.layers = asked.stages.order;
  if (!plan.order.layers.empty()) plan.order.name = "given";
  return plan;
}

/// The faster one of the best order and the recorded one: an order is chosen for its slowest stage,
/// a step is more than that.
JobPlan ordered(const JobRequest& asked, const Partitioner& partitioner, const Schedule& compute,
                IncumbentSeconds incumbent, PlanMemo& memo) {
  if (!asked.stages.begins.empty()) return as_given(asked, partitioner, compute, memo);
  CutMemo& as_recorded = memo.of(asked.micro_batches, {});
  if (!asked.chain.may_reorder)
    return quickest(asked, partitioner, compute, incumbent, as_recorded);
  OrderChoice order = order_for(asked, compute, as_recorded);
  std::optional<JobPlan> plan;
  std::exception_ptr deferred;
  if (!order.layers.empty()) {
    JobRequest moved = asked;
    moved.chain = reordered(asked.chain, order.layers);
    try {
      plan = quickest(moved, partitioner, compute, incumbent,
                      memo.of(asked.micro_batches, order.layers));
      plan->order = order;
      for (double* each : {&incumbent.all, &incumbent.deferred, &incumbent.offload})
        *each = std::min(*each, plan->step_seconds);
    } catch (const DeferredError&) {
      deferred = std::current_exception();
    } catch (const Error&) {
      // Not in this order, by this partitioner; the recorded one may do.
    }
    order.name = OrderChoice{}.name;
    order.layers.clear();
    order.seconds = order.recorded_seconds;
    order.is_exact = false;
  }
  try {
    JobPlan recorded = quickest(asked, partitioner, compute, incumbent, as_recorded);
    recorded.order = std::move(order);
    if (!plan || recorded.step_seconds <= plan->step_seconds) return recorded;
  } catch (const Error&) {
    if (!plan && deferred) std::rethrow_exception(deferred);
    if (!plan) throw;
  }
  return std::move(*plan);
}

/// The same without swaps of stages, and what is the faster one: with a link cuts and orders are
/// made for swaps, for which action lists may leave too little time, and hosts too little room.
JobPlan with_or_without_swaps(const JobRequest& asked, const Partitioner& partitioner,
                              const Schedule& compute, IncumbentSeconds incumbent, PlanMemo& memo) {
  std::optional<JobPlan> plan;
  std::exception_ptr reason;
  try {
    plan = ordered(asked, partitioner, compute, incumbent, memo);
  } catch (const GivenUpError&) {
    throw;
  } catch (const Error&) {
    reason = std::current_exception();
  }
  const auto& memory_reduction = asked.variant.memory_reduction;
  const bool may_swap = asked.swap_bytes_per_second > 0.0 && asked.device_memory != kNoLimit &&
                        (!memory_reduction || memory_reduction == JobMemoryReduction::kStages);
  if (may_swap) {
    JobRequest alone = asked;
    alone.variant.memory_reduction = JobMemoryReduction::kRecompute;
    if (plan) incumbent.all = incumbent.cuts = std::min(incumbent.all, plan->step_seconds);
    try {
      JobPlan other = ordered(alone, partitioner, compute, incumbent, memo);
      if (!plan || is_faster(other.step_seconds, plan->step_seconds)) plan = std::move(other);
      if (memory_reduction) plan->memory_reduction = *memory_reduction;
    } catch (const Error&) {
      // The first reason is told.
    }
  }
  if (!plan) std::rethrow_exception(reason);
  return std::move(*plan);
}

}  // namespace

Bytes JobPlan::peak() const {
  Bytes most;
  for (const RankMemory& rank : memory) most = std::max(most, rank.peak);
  return most;
}

bool JobPlan::reduces_memory() const {
  return memory_reduction == JobMemoryReduction::kIdleOffload ||
         std::any_of(stages.begin(), stages.end(),
                     [](const StageEstimate& stage) { return stage.raw_memory > stage.memory; });
}

double JobPlan::micro_batches_per_second() const {
  return step_seconds > 0.0 ? micro_batches / step_seconds : 0.0;
}

double JobPlan::exposed_communication_seconds() const {
  double most = 0.0;
  for (const RankTiming& rank : timing.ranks)
    most = std::max(most, rank.exposed_communication_seconds);
  return most;
}

double JobPlan::exposed_swap_seconds() const {
  double most = 0.0;
  for (const RankTiming& rank : timing.ranks) most = std::max(most, rank.exposed_swap_seconds);
  return most;
}

bool changes_results(const Schedule& schedule) {
  if (schedule.weight_rule != WeightRule::kNewest) return true;
  for (const auto& actions : schedule.ranks)
    for (const Action& action : actions)
      if (action.kind == ActionKind::kStep && action.micro_batch != kNoMicroBatch) return true;
  return false;
}

JobChoice choice_of(const JobPlan& plan) {
  return {&schedule_generator_named(plan.schedule), plan.data_parallel, plan.variant,
          plan.micro_batches};
}

JobRequest request_for(const JobRequest& request, const JobChoice& choice) {
  JobRequest asked = request;
  asked.data_parallel = choice.data_parallel;
  asked.variant = choice.variant;
  if (choice.micro_batches != 0) asked.micro_batches = choice.micro_batches;
  check(asked);
  const std::uint32_t micro_batches = most_micro_batches(asked);
  return with_micro_batches(std::move(asked), micro_batches);
}

JobPlan make_job_plan(const JobRequest& request, const Partitioner& partitioner,
                      const JobChoice& choice) {
  PlanMemo memo;
  return make_job_plan(request, partitioner, choice, memo);
}

JobPlan make_job_plan(const JobRequest& request, const Partitioner& partitioner,
                      const JobChoice& choice, PlanMemo& memo) {
  const JobRequest asked = request_for(request, choice);
  const ScheduleGenerator& generator = *choice.generator;
  const ScheduleRequest schedule_request =
      schedule_request_for(generator, choice.variant, asked.ranks / asked.data_parallel,
                           asked.micro_batches / asked.data_parallel);
  // Before action lists are made, which may be long.
  const std::uint64_t stages = generator.stage_count(schedule_request);
  if (stages > asked.chain.layers.size())
    throw ConfigError("there are more stages than layers: {} for {}; use fewer {}", stages,
                      asked.chain.layers.size(),
                      choice.variant.chunks > 2 ? "chunks or devices" : "devices");
  const Schedule compute = generator.generate(schedule_request);
  if (request.schedule == kAnySchedule && changes_results(compute))
    throw PlanError("it updates weights while micro-batches are in flight, which changes results "
                    "(name it with --schedule to have it)");
  if (choice.variant.second_copy == SecondCopy::kParked && asked.swap_bytes_per_second == 0.0)
    throw PlanError("weights are parked on the host, and there is no link to it (name one, or keep "
                    "both copies)");
  JobPlan plan = with_or_without_swaps(asked, partitioner, compute, choice.incumbent, memo);
  plan.variant = as_made(generator, choice.variant, compute);
  plan.batch = batch_of(request);
  plan.bound_seconds = job_bound(request);
  return plan;
}

}  // namespace spillway::planner
