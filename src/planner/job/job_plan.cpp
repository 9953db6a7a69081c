#include "spillway/planner/job/job_plan.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "job_assembly.h"
#include "job_costs.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "stage_rooms.h"

namespace spillway::planner {
namespace {

/// Lists compute whole stages again, so every layer must be one that may run again.
bool may_recompute_all(const ModelChain& chain) {
  return std::all_of(chain.layers.begin(), chain.layers.end(), [](const ModelLayer& layer) {
    return layer.stash == Bytes(0) ||
           std::any_of(layer.recompute.begin(), layer.recompute.end(),
                       [](const RecomputePoint& point) { return point.stash == Bytes(0); });
  });
}

/// Passes of micro-batches through stages: what a run of the referee takes, but for messages.
std::uint64_t passes_of(const Schedule& compute) {
  return compute.all_micro_batches() * compute.stages;
}

/// Runs of the referee for windows, so that the search for longer lists takes no longer.
std::size_t window_runs(const Schedule& compute) {
  constexpr std::uint64_t kMostRuns = 200;
  constexpr std::uint64_t kMostPassesOfAllRuns = 1024 * kMostRuns;
  return std::clamp<std::uint64_t>(kMostPassesOfAllRuns / passes_of(compute), 1, kMostRuns);
}

/// Whether there is anything to leave for, and any reason to.
bool has_windows(const JobRequest& request) {
  return request.swap_bytes_per_second > 0.0 && request.device_memory != kNoLimit;
}

/// Why whole stashes are not tried to leave in idle windows; empty: they are.
std::string problem_of_windows(const JobRequest& request, const Schedule& compute) {
  constexpr std::uint64_t kMostPasses = 1U << 14U;
  if (!has_windows(request))
    return "windows are for devices with a limit and a link to the host (name both, or let stages "
           "relieve themselves)";
  if (passes_of(compute) <= kMostPasses) return {};
  return message("swaps in idle windows were not tried: {} passes of micro-batches through stages "
                 "are more than {}",
                 passes_of(compute), kMostPasses);
}

/// Cuts as if there were room, and whole stashes that leave while a rank computes something else.
JobPlan relieved_in_windows(const JobRequest& request, const Partitioner& partitioner,
                            const Schedule& compute) {
  JobRequest roomy = request;
  roomy.device_memory = kNoLimit;
  const SegmentCosts costs(problem_for(roomy, compute));
  const PartitionEstimate estimate = judge(costs, cuts_for(roomy, partitioner, costs));
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
  const std::size_t runs = window_runs(compute);
  plan.actions = may_recompute_all(request.chain)
                     ? with_memory_fitted(plan.actions, plan.costs, runs)
                     : with_swapped_stashes(plan.actions, plan.costs, runs);
  return finished(request, std::move(plan));
}

[[noreturn]] void refuse_without_windows(const std::exception_ptr& reason,
                                         const std::string& no_windows) {
  try {
    std::rethrow_exception(reason);
  } catch (const NoRoomError& error) {
    throw NoRoomError(message("{}; {}", error.what(), no_windows), error.rank(), error.needed());
  } catch (const PlanError& error) {
    throw PlanError("{}; {}", error.what(), no_windows);
  }
}

/// With the faster of both kinds of relief, where both are open.
JobPlan relieved(const JobRequest& asked, const Partitioner& partitioner, const Schedule& compute) {
  const std::string no_windows = problem_of_windows(asked, compute);
  if (asked.variant.relief == JobRelief::kWindows) {
    if (!no_windows.empty()) throw PlanError("{}", no_windows);
    return relieved_in_windows(asked, partitioner, compute);
  }
  if (asked.variant.relief == JobRelief::kStages || !has_windows(asked))
    return relieved_by_stage(asked, partitioner, compute);

  std::optional<JobPlan> by_stage;
  std::exception_ptr reason;
  Bytes needed = kNoLimit;
  try {
    by_stage = relieved_by_stage(asked, partitioner, compute);
    if (!by_stage->is_relieved()) return std::move(*by_stage);
  } catch (const NoRoomError& error) {
    reason = std::current_exception();
    needed = error.needed();
  } catch (const Error&) {
    reason = std::current_exception();
  }
  if (!no_windows.empty()) {
    if (!by_stage) refuse_without_windows(reason, no_windows);
    by_stage->not_tried = no_windows;
    return std::move(*by_stage);
  }
  try {
    JobPlan by_window = relieved_in_windows(asked, partitioner, compute);
    if (!by_stage || by_window.step_seconds < by_stage->step_seconds) return by_window;
  } catch (const NoRoomError& error) {
    if (!by_stage && error.needed() < needed) throw;  // The nearer one.
  } catch (const Error&) {
    // The first reason is told.
  }
  if (!by_stage) std::rethrow_exception(reason);
  return std::move(*by_stage);
}

/// The best order for the stages of this schedule within the devices; if nothing fits, as if there
/// were room: windows may make it.
OrderChoice order_for(const JobRequest& asked, const Schedule& compute) {
  try {
    OrderChoice order = choose_order(problem_for(asked, compute), asked.order_effort);
    if (order.seconds < kNoLink || asked.device_memory == kNoLimit) return order;
  } catch (const Error&) {
    if (asked.device_memory == kNoLimit) throw;
  }
  JobRequest roomy = asked;
  roomy.device_memory = kNoLimit;
  return choose_order(problem_for(roomy, compute), asked.order_effort);
}

/// In the order that goes with stages which are there already.
JobPlan as_given(const JobRequest& asked, const Partitioner& partitioner, const Schedule& compute) {
  JobRequest moved = asked;
  moved.chain = reordered(asked.chain, asked.stages.order);
  JobPlan plan = relieved(moved, partitioner, compute);
  plan.order.layers = asked.stages.order;
  if (!plan.order.layers.empty()) plan.order.name = "given";
  return plan;
}

/// The faster one of the best order and the recorded one: an order is chosen for its slowest stage,
/// a step is more than that.
JobPlan ordered(const JobRequest& asked, const Partitioner& partitioner, const Schedule& compute) {
  if (!asked.stages.begins.empty()) return as_given(asked, partitioner, compute);
  if (!asked.chain.may_reorder) return relieved(asked, partitioner, compute);
  OrderChoice order = order_for(asked, compute);
  std::optional<JobPlan> plan;
  if (!order.layers.empty()) {
    JobRequest moved = asked;
    moved.chain = reordered(asked.chain, order.layers);
    try {
      plan = relieved(moved, partitioner, compute);
      plan->order = order;
    } catch (const Error&) {
      // Not in this order, by this partitioner; the recorded one may do.
    }
    order.name = OrderChoice{}.name;
    order.layers.clear();
    order.seconds = order.recorded_seconds;
    order.is_exact = false;
  }
  try {
    JobPlan recorded = relieved(asked, partitioner, compute);
    recorded.order = std::move(order);
    if (!plan || recorded.step_seconds <= plan->step_seconds) return recorded;
  } catch (const Error&) {
    if (!plan) throw;
  }
  return std::move(*plan);
}

}  // namespace

Bytes JobPlan::peak() const {
  Bytes most;
  for (const RankMemory& rank : memory) most = std::max(most, rank.peak);
  return most;
}

bool JobPlan::is_relieved() const {
  return relief == JobRelief::kWindows ||
         std::any_of(stages.begin(), stages.end(),
                     [](const StageEstimate& stage) { return stage.raw_memory > stage.memory; });
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
  return {&schedule_generator_named(plan.schedule), plan.groups, plan.variant, plan.micro_batches};
}

JobRequest request_for(const JobRequest& request, const JobChoice& choice) {
  JobRequest asked = request;
  asked.groups = choice.groups;
  asked.variant = choice.variant;
  if (choice.micro_batches != 0) asked.micro_batches = choice.micro_batches;
  check(asked);
  const std::uint32_t micro_batches = most_micro_batches(asked);
  return with_micro_batches(std::move(asked), micro_batches);
}

JobPlan make_job_plan(const JobRequest& request, const Partitioner& partitioner,
                      const JobChoice& choice) {
  const JobRequest asked = request_for(request, choice);
  const ScheduleGenerator& generator = *choice.generator;
  const ScheduleRequest lists = lists_for(generator, choice.variant, asked.ranks / asked.groups,
                                          asked.micro_batches / asked.groups);
  // Before lists are made, which may be long.
  const std::uint64_t stages = generator.stage_count(lists);
  if (stages > asked.chain.layers.size())
    throw ConfigError("there are more stages than layers: {} for {}; use fewer devices", stages,
                      asked.chain.layers.size());
  const Schedule compute = generator.generate(lists);
  if (request.schedule == kAnySchedule && changes_results(compute))
    throw PlanError("it updates weights while micro-batches are in flight, which changes results "
                    "(name it with --schedule to have it)");
  if (choice.variant.second_copy == SecondCopy::kParked && asked.swap_bytes_per_second == 0.0)
    throw PlanError("weights are parked on the host, and there is no link to it (name one, or keep "
                    "both copies)");
  JobPlan plan = ordered(asked, partitioner, compute);
  plan.variant = as_made(generator, choice.variant, compute);
  plan.batch = batch_of(request);
  plan.bound_seconds = job_bound(request);
  return plan;
}

}  // namespace spillway::planner
