#include "cut_planner.h"

#include <algorithm>
#include <string>

#include "job_assembly.h"
#include "job_costs.h"
#include "search_limits.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "stage_budgets.h"

namespace spillway::planner {
namespace {

/// Whether every layer can be recomputed: actions recompute whole stages.
bool may_recompute_all(const ModelChain& chain) {
  return std::all_of(chain.layers.begin(), chain.layers.end(), [](const ModelLayer& layer) {
    return layer.stash == Bytes(0) ||
           std::any_of(layer.recompute.begin(), layer.recompute.end(),
                       [](const RecomputePoint& point) { return point.stash == Bytes(0); });
  });
}

/// Passes of micro-batches through stages: the work of one simulation, without messages.
std::uint64_t passes_of(const Schedule& compute) {
  return compute.all_micro_batches() * compute.stages;
}

/// Number of simulations in the search for idle-time offload: fewer for longer action lists, so
/// that the search takes no longer.
std::size_t offload_runs(const Schedule& compute) {
  return std::clamp<std::uint64_t>(kMostPassesOfOffloadRuns / passes_of(compute), 1,
                                   kMostOffloadRuns);
}

/// Whether there is a link to swap over, and a limit of memory that is a reason to.
bool can_offload(const JobRequest& request) {
  return !request.swap_rate.is_none() && request.device_memory != kNoLimit;
}

/// The reason why idle-time offload is not tried; empty: it is.
std::string problem_of_offload(const JobRequest& request, const Schedule& compute) {
  if (!can_offload(request))
    return "idle-time offload needs a limit of device memory and a link to the host (name both, or "
           "let stages "
           "reduce their own memory)";
  if (passes_of(compute) <= kMostPassesOfOffload) return {};
  return message("swaps in idle time were not tried: {} passes of micro-batches through stages "
                 "are more than {}",
                 passes_of(compute), kMostPassesOfOffload);
}

/// The faster plan; of two refusals for lack of room the nearer one, else the first one.
OrRefusal<JobPlan> faster_or_nearer(OrRefusal<JobPlan> stages, OrRefusal<JobPlan> offload) {
  if (stages && offload)
    return offload->step_seconds < stages->step_seconds ? std::move(offload) : std::move(stages);
  if (stages || offload) return stages ? std::move(stages) : std::move(offload);
  const bool is_nearer = offload.refusal().cause == Refusal::Cause::kRoom &&
                         (stages.refusal().cause != Refusal::Cause::kRoom ||
                          offload.refusal().needed < stages.refusal().needed);
  return is_nearer ? std::move(offload) : std::move(stages);
}

}  // namespace

CutPlanner::CutPlanner(const JobRequest& request, const Partitioner& partitioner,
                       const Schedule& compute, const IncumbentSeconds& incumbent, CutMemo& memo)
    : request_(request),
      partitioner_(partitioner),
      compute_(compute),
      incumbent_(incumbent),
      memo_(memo),
      no_offload_(problem_of_offload(request, compute)) {}

OrRefusal<JobPlan> CutPlanner::plan() {
  const auto& kind = request_.variant.memory_reduction;
  const bool has_incumbent = incumbent_.all < kNoTime || incumbent_.deferred < kNoTime;
  if (kind == JobMemoryReduction::kIdleOffload) {
    if (!no_offload_.empty()) return no_plan("{}", no_offload_);
    plan_unlimited();
    if (*unlimited_ && !is_faster((*unlimited_)->plan.step_seconds, incumbent_.cuts))
      return Refusal{
          .cause = Refusal::Cause::kPruned,
          .sentence = "idle-time offload is no faster than these cuts with unlimited memory"};
    return with_idle_offload();
  }
  if (request_.device_memory != kNoLimit && has_incumbent) {
    plan_unlimited();
    if (auto reason = given_up(/*may_offload=*/!kind)) return std::move(*reason);
  }
  const bool may_swap = can_offload(request_) && kind != JobMemoryReduction::kRecompute;
  // Cuts know swaps as a rate beside compute, but forwards in a row leave less time for them. So a
  // half and a quarter of the bandwidth are tried, too, as long as ranks stall for swaps or hosts
  // lack memory for them; `plan_choice` tries none of it. The first reason counts.
  OrRefusal<JobPlan> best = Refusal{};
  JobRequest request = request_;
  for (const double share : {1.0, 0.5, 0.25}) {
    request.stage_swap_share = share;
    OrRefusal<JobPlan> plan = reduced_by_stage(request, partitioner_, compute_,
                                               best ? best->step_seconds : incumbent_.cuts, memo_);
    const bool waits = !plan || plan->exposed_swap_seconds() > 1e-9 * plan->step_seconds;
    const bool is_first = share == 1.0;
    if (is_first || (plan && (!best || is_faster(plan->step_seconds, best->step_seconds))))
      best = std::move(plan);
    if (!waits || !may_swap) break;
  }
  if (best) best->memory_reduction = kind.value_or(JobMemoryReduction::kStages);
  if (!may_swap || kind || (best && !best->reduces_memory())) return best;
  if (!no_offload_.empty()) return without_idle_offload(std::move(best));
  plan_unlimited();
  // Idle-time offload only adds time to the plan with unlimited memory.
  const double known = best ? best->step_seconds : kNoTime;
  if (!*unlimited_ || (*unlimited_)->plan.step_seconds >= std::min(known, offload_incumbent()))
    return best;
  return faster_or_nearer(std::move(best), with_idle_offload());
}

void CutPlanner::plan_unlimited() {
  if (unlimited_) return;
  OrRefusal<SegmentCosts> costs = costs_for(unlimited(request_), compute_);
  const OrRefusal<Cuts> cuts =
      costs ? cuts_for(request_, partitioner_, *costs, memo_) : OrRefusal<Cuts>(costs.refusal());
  if (!cuts) {
    unlimited_ = cuts.refusal();
    return;
  }
  PartitionEstimate estimate = evaluate(*costs, *cuts);
  const double input_share = largest_input_share(*costs, estimate);
  OrRefusal<JobPlan> plan = simulated(request_, partitioner_, compute_,
                                      CutModel{std::move(*costs), *cuts, std::move(estimate)});
  if (plan)
    unlimited_ = UnlimitedPlan{std::move(*plan), input_share};
  else
    unlimited_ = plan.refusal();
}

std::optional<double> CutPlanner::least_seconds() const {
  if (compute_.stages != compute_.rank_count() || compute_.replica_count() > 1) return 0.0;
  const OrRefusal<SegmentCosts> costs = costs_for(request_, compute_);
  if (!costs) return std::nullopt;
  const auto solved = least_time_cuts(*costs);
  // The way back of the first part may begin before the last one has left.
  const double passes = static_cast<double>(compute_.all_micro_batches()) - 0.5;
  return solved ? solved->worst * passes : 0.0;
}

std::optional<Refusal> CutPlanner::given_up(bool may_offload) const {
  const OrRefusal<UnlimitedPlan>& unlimited = *unlimited_;
  if (!unlimited) return std::nullopt;
  const double without = unlimited->plan.step_seconds;
  may_offload = may_offload && no_offload_.empty();
  if (may_offload && is_faster(without, offload_incumbent())) return std::nullopt;
  const std::optional<double> least = least_seconds();
  if (!least) return std::nullopt;
  // Both ways to reduce memory have to be ruled out before a candidate is proven slow.
  if (!is_faster(*least, incumbent_.all) &&
      !(may_offload && is_faster(without / kMostGainOfCuts, incumbent_.all)))
    return Refusal{
        .cause = Refusal::Cause::kPruned,
        .sentence =
            message("its slowest stage takes {} s for all micro-batches; another choice takes {} s",
                    *least, incumbent_.all)};
  if (is_faster(without / kMostGainOfCuts, incumbent_.deferred)) return std::nullopt;
  return Refusal{.cause = Refusal::Cause::kDeferred,
                 .sentence = message("it takes {} s with unlimited memory, and more with memory "
                                     "reduction; another choice takes {} s",
                                     without, incumbent_.deferred),
                 .seconds = without};
}

OrRefusal<JobPlan> CutPlanner::with_idle_offload() const {
  const OrRefusal<UnlimitedPlan>& unlimited = *unlimited_;
  if (!unlimited) return unlimited.refusal();
  JobPlan plan = unlimited->plan;
  plan.memory_reduction = JobMemoryReduction::kIdleOffload;
  Bytes fixed;
  for (const RankMemory& rank : plan.memory) fixed = std::max(fixed, rank.fixed);
  if (fixed >= request_.device_memory)
    return Refusal{.sentence =
                       message("a rank holds {} before its first action, and its device has {}",
                               fixed, request_.device_memory)};
  // The passes know actions; what no action moves has its room beforehand.
  plan.costs.memory = request_.device_memory - fixed;
  plan.costs.shares.input = unlimited->input_share;
  const std::size_t runs = offload_runs(compute_);
  plan.actions = may_recompute_all(request_.chain)
                     ? with_memory_fitted(plan.actions, plan.costs, runs)
                     : with_swapped_stashes(plan.actions, plan.costs, runs);
  set_timing(request_, time_schedule(plan.actions, plan.costs), plan);
  if (auto lack = lack_of_room(request_, plan)) return std::move(*lack);
  // The cuts were made with unlimited memory; the swaps of the action lists fit it into the
  // devices.
  for (std::size_t k = 0; k < plan.stages.size(); ++k)
    plan.stages[k].memory = plan.bytes_after[k].all();
  return plan;
}

double CutPlanner::offload_incumbent() const {
  return std::min({incumbent_.all, incumbent_.offload, incumbent_.cuts});
}

OrRefusal<JobPlan> CutPlanner::without_idle_offload(OrRefusal<JobPlan> plan) const {
  if (plan) {
    plan->not_tried = no_offload_;
    return plan;
  }
  Refusal reason = plan.refusal();
  // Senseless counts have no better chance by other ways to save memory.
  if (reason.cause != Refusal::Cause::kRequest) reason.sentence += "; " + no_offload_;
  return reason;
}

}  // namespace spillway::planner
