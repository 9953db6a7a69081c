#include "cut_planner.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "job_assembly.h"
#include "job_costs.h"
#include "search_limits.h"
#include "spillway/base/error.h"
#include "spillway/base/sizes_apart.h"
#include "spillway/planner/schedule/refusal.h"
#include "spillway/planner/schedule/schedule_passes.h"

namespace spillway::job {
namespace {

/// The first stage that does not fit.
Refusal too_full(const partition::SegmentCosts& costs,
                 const partition::PartitionEstimate& estimate) {
  const auto is_too_full = [](const partition::StageEstimate& stage) {
    return std::isinf(stage.seconds);
  };
  const auto stage = std::find_if(estimate.stages.begin(), estimate.stages.end(), is_too_full);
  const auto index = static_cast<std::uint32_t>(stage - estimate.stages.begin());
  const SizesApart sizes = sizes_apart(stage->raw_memory, costs.problem().devices[index].memory);
  return no_plan("stage {}, layers {} to {}, takes {} before swaps and recomputation, which cannot "
                 "bring it below {} (let the partitioner 'spillway' cut, or use more ranks or more "
                 "memory)",
                 index, stage->first_layer, stage->last_layer, sizes.first, sizes.second);
}

/// These cuts, or else those with the least memory on the fullest stage, when stages swap and
/// recompute all they can however long it takes, and devices have no end. Refused where something
/// else than memory is in the way.
OrRefusal<CutModel> least_memory_model(const JobRequest& request,
                                       const schedule::Schedule& schedule,
                                       std::optional<partition::Cuts> cuts) {
  // No step takes so long, so time limits nothing here.
  constexpr double kLongEnough = 1e12;
  OrRefusal<partition::SegmentCosts> costs = costs_for(unlimited(request), schedule);
  if (!costs) return costs.refusal();
  if (!cuts) {
    auto least = partition::least_memory_cuts(*costs, kLongEnough);
    if (!least) return no_plan("a micro-batch takes more than {} s on a stage", kLongEnough);
    cuts = std::move(least->cuts);
  }
  partition::PartitionEstimate estimate = partition::evaluate_memory(*costs, *cuts, kLongEnough);
  return CutModel{std::move(*costs), std::move(*cuts), std::move(estimate)};
}

std::vector<std::set<std::uint32_t>> stages_of_ranks(const schedule::Schedule& schedule) {
  std::vector<std::set<std::uint32_t>> stages(schedule.rank_count());
  for (std::uint32_t replica = 0; replica < schedule.replica_count(); ++replica)
    for (std::uint32_t stage = 0; stage < schedule.stages; ++stage)
      stages[schedule.rank_of(replica, stage)].insert(stage);
  return stages;
}

/// What the stages of one plan may hold, as it changes from trial to trial.
class StageBudgets {
 public:
  StageBudgets(const JobRequest& request, const schedule::Schedule& compute,
               partition::PartitionProblem problem, double incumbent_seconds)
      : request_(request),
        compute_(compute),
        incumbent_seconds_(incumbent_seconds),
        problem_(std::move(problem)),
        by_rank_(stages_of_ranks(compute)) {}

  /// The partitioner's cuts. `cuts` are them, also where they do not fit.
  OrRefusal<CutModel> cut(const partition::Partitioner& partitioner, CutMemo& memo,
                          std::optional<partition::Cuts>& cuts) const {
    cuts.reset();
    OrRefusal<partition::SegmentCosts> costs = costs_of(problem_);
    if (!costs) return costs.refusal();
    const OrRefusal<partition::Cuts> found = cuts_for(request_, partitioner, *costs, memo);
    if (!found) return found.refusal();
    cuts = *found;
    return evaluated(std::move(*costs), *cuts);
  }

  /// These cuts, which were found to fit with stages as `tight` has them.
  OrRefusal<CutModel> within(const JobPlan& tight, const partition::Cuts& cuts) {
    for (std::uint32_t stage = 0; stage < compute_.stages; ++stage)
      // Not more: with room to spare a stage keeps more, and its rank is too full again.
      problem_.devices[stage].memory = tight.stages[stage].memory;
    OrRefusal<partition::SegmentCosts> costs = costs_of(problem_);
    if (!costs) return costs.refusal();
    return evaluated(std::move(*costs), cuts);
  }

  /// Stages of ranks that are too full get less: step by step, for they share what is lacking in
  /// parts that nobody knows, and at last as if each one had it all.
  void take_away(const JobPlan& full) {
    ++steps_;
    std::vector<Bytes> less(compute_.stages);
    for (std::uint32_t rank = 0; rank < by_rank_.size(); ++rank) {
      if (full.memory[rank].peak <= request_.device_memory) continue;
      const Bytes lack = full.memory[rank].peak - request_.device_memory;
      const std::size_t parts = std::min(by_rank_[rank].size(), kMostBudgetSteps);
      // A byte more, since the quotient is rounded down.
      const Bytes part = Bytes(1) + lack * std::min(steps_, parts) / parts;
      for (const std::uint32_t stage : by_rank_[rank]) less[stage] = std::max(less[stage], part);
    }
    for (std::uint32_t stage = 0; stage < less.size(); ++stage) {
      if (less[stage] == Bytes(0)) continue;
      Bytes& room = problem_.devices[stage].memory;
      // What it did not use before is no room to take away from.
      room = std::min(room, full.stages[stage].memory);
      room -= std::min(room, less[stage]);
    }
  }

  /// Steps since room was given back.
  std::size_t steps() const { return steps_; }

  /// Each stage gets what it holds there, and what its ranks leave free.
  void give_back(const JobPlan& tight) {
    steps_ = 0;
    std::vector<Bytes> free(compute_.stages, partition::kNoLimit);
    for (std::uint32_t rank = 0; rank < by_rank_.size(); ++rank)
      for (const std::uint32_t stage : by_rank_[rank])
        // A stage with copies on several ranks has to fit on the fullest of them.
        free[stage] = std::min(free[stage], request_.device_memory - tight.memory[rank].peak);
    for (std::uint32_t stage = 0; stage < free.size(); ++stage)
      problem_.devices[stage].memory = tight.stages[stage].memory + free[stage];
  }

 private:
  bool is_too_slow(const std::vector<double>& stage_seconds) const {
    return busiest_rank_seconds(compute_, stage_seconds) >= incumbent_seconds_;
  }

  OrRefusal<CutModel> evaluated(partition::SegmentCosts costs, const partition::Cuts& cuts) const {
    const Refusal too_slow{.cause = Refusal::Cause::kPruned,
                           .sentence = "a rank computes for longer than other cuts take"};
    std::vector<double> seconds;
    for (std::uint32_t k = 0; k + 1 < cuts.size(); ++k)
      seconds.push_back(costs.load({cuts[k], cuts[k + 1], k}).seconds);
    // Before layers are chosen to be recomputed, which takes much longer.
    if (is_too_slow(seconds)) return too_slow;
    partition::PartitionEstimate estimate = partition::evaluate(costs, cuts);
    if (!estimate.fits) return too_full(costs, estimate);
    for (std::uint32_t k = 0; k < seconds.size(); ++k)
      seconds[k] += estimate.stages[k].recompute_seconds;
    if (is_too_slow(seconds)) return too_slow;
    return CutModel{std::move(costs), cuts, std::move(estimate)};
  }

  const JobRequest& request_;
  const schedule::Schedule& compute_;
  const double incumbent_seconds_;
  partition::PartitionProblem problem_;
  std::vector<std::set<std::uint32_t>> by_rank_;
  std::size_t steps_ = 0;
};

/// A refusal that names the fullest rank of a plan with the least memory, and what that needs.
Refusal with_fullest_rank(const Refusal& reason, const JobPlan& tight) {
  return {Refusal::Cause::kRoom, reason.sentence, fullest_rank(tight), tight.peak()};
}

/// A plan whose stages swap parts of their stashes and recompute layers until ranks fit.
///
/// Partitions know stages, and devices limit ranks. Where a rank has several of them, or the copy
/// of another one (GEMS, Chimera), what each may hold is found by trying: less where a rank has
/// come out too full, and where no cuts fit, what ranks leave free under those that hold least.
/// Refused with `kRoom` where those do not fit either, with `kPruned` where a rank computes for
/// `incumbent_seconds` under the partitioner's cuts, and as `plan_choice` says.
OrRefusal<JobPlan> reduced_by_stage(const JobRequest& request,
                                    const partition::Partitioner& partitioner,
                                    const schedule::Schedule& compute, double incumbent_seconds,
                                    CutMemo& memo) {
  std::optional<partition::Cuts> cuts;
  const auto problem = refusing([&] { return problem_for(request, compute); });
  if (!problem) {
    // Devices that do not even hold what no stage owns: so much more would be needed.
    const OrRefusal<JobPlan> tight =
        simulated(request, partitioner, compute, least_memory_model(request, compute, cuts));
    return tight ? with_fullest_rank(problem.refusal(), *tight) : tight.refusal();
  }
  StageBudgets budgets(request, compute, *problem, incumbent_seconds);
  bool was_tight = false;
  // It ends: room is given back once, and taken away in so many steps before and after that.
  for (bool is_first = true;; is_first = false) {
    const bool is_last = budgets.steps() >= kMostBudgetSteps;
    OrRefusal<JobPlan> plan = Refusal{};
    if (!is_last)
      plan = simulated(request, partitioner, compute, budgets.cut(partitioner, memo, cuts));
    if (plan && plan->peak() <= request.device_memory) return with_room(request, std::move(plan));
    if (plan) {
      budgets.take_away(*plan);
      continue;
    }
    const Refusal& reason = plan.refusal();
    if (reason.is_given_up() || request.device_memory == partition::kNoLimit) return plan;
    // How stages look, and how full ranks are, with the least memory whatever it takes.
    const OrRefusal<CutModel> least = least_memory_model(request, compute, cuts);
    const OrRefusal<JobPlan> tight = simulated(request, partitioner, compute, least);
    if (!tight) return tight.refusal();
    if (tight->peak() > request.device_memory && is_first) return with_fullest_rank(reason, *tight);
    if (auto lack = lack_of_room(request, *tight)) return std::move(*lack);
    if (was_tight && !cuts) return plan;  // This partitioner does not find them.
    if (was_tight || is_last)
      return with_room(
          request, simulated(request, partitioner, compute, budgets.within(*tight, least->cuts)));
    was_tight = true;
    budgets.give_back(*tight);
  }
}

/// Whether every layer can be recomputed: actions recompute whole stages.
bool may_recompute_all(const partition::ModelChain& chain) {
  return std::all_of(
      chain.layers.begin(), chain.layers.end(), [](const partition::ModelLayer& layer) {
        return layer.stash == Bytes(0) ||
               std::any_of(
                   layer.recompute.begin(), layer.recompute.end(),
                   [](const partition::RecomputePoint& point) { return point.stash == Bytes(0); });
      });
}

/// Number of simulations in the search for idle-time offload: fewer for longer action lists, so
/// that the search takes no longer.
std::size_t offload_runs(const schedule::Schedule& compute) {
  return std::clamp<std::uint64_t>(kMostPassesOfOffloadRuns / stage_passes(compute), 1,
                                   planner_schedule::kMostOffloadRuns);
}

/// Whether there is a link to swap over, and a limit of memory that is a reason to.
bool can_offload(const JobRequest& request) {
  return !request.swap_rate.is_none() && request.device_memory != partition::kNoLimit;
}

/// The reason why idle-time offload is not tried; empty: it is.
std::string problem_of_offload(const JobRequest& request, const schedule::Schedule& compute) {
  if (!can_offload(request))
    return "idle-time offload needs a limit of device memory and a link to the host (name both, or "
           "let stages "
           "reduce their own memory)";
  if (stage_passes(compute) <= kMostPassesOfOffload) return {};
  return message("swaps in idle time were not tried: {} passes of micro-batches through stages "
                 "are more than {}",
                 stage_passes(compute), kMostPassesOfOffload);
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

/// The ways to get the action lists of compute into memory, one after the other.
class CutPlanner {
 public:
  /// All but the incumbent must outlive it.
  CutPlanner(const JobRequest& request, const partition::Partitioner& partitioner,
             const schedule::Schedule& compute, const IncumbentSeconds& incumbent, CutMemo& memo)
      : request_(request),
        partitioner_(partitioner),
        compute_(compute),
        incumbent_(incumbent),
        memo_(memo),
        no_offload_(problem_of_offload(request, compute)) {}

  OrRefusal<JobPlan> plan() {
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
    if (request_.device_memory != partition::kNoLimit && has_incumbent) {
      plan_unlimited();
      if (auto reason = given_up(/*may_offload=*/!kind)) return std::move(*reason);
    }
    const bool may_swap = can_offload(request_) && kind != JobMemoryReduction::kRecompute;
    // Cuts know swaps as a rate beside compute, but forwards in a row leave less time for them. So
    // a half and a quarter of the bandwidth are tried, too, as long as ranks stall for swaps or
    // hosts lack memory for them; `plan_choice` tries none of it. The first reason counts.
    OrRefusal<JobPlan> best = Refusal{};
    JobRequest request = request_;
    for (const double share : {1.0, 0.5, 0.25}) {
      request.stage_swap_share = share;
      OrRefusal<JobPlan> plan = reduced_by_stage(
          request, partitioner_, compute_, best ? best->step_seconds : incumbent_.cuts, memo_);
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

 private:
  /// The plan with unlimited memory, and the share of its stashes that are inputs of stages.
  struct UnlimitedPlan {
    JobPlan plan;
    double input_share = 0.0;
  };

  /// Sets `unlimited_`, which the calls below read.
  void plan_unlimited() {
    if (unlimited_) return;
    OrRefusal<partition::SegmentCosts> costs = costs_for(unlimited(request_), compute_);
    const OrRefusal<partition::Cuts> cuts = costs ? cuts_for(request_, partitioner_, *costs, memo_)
                                                  : OrRefusal<partition::Cuts>(costs.refusal());
    if (!cuts) {
      unlimited_ = cuts.refusal();
      return;
    }
    partition::PartitionEstimate estimate = partition::evaluate(*costs, *cuts);
    const double input_share = largest_input_share(*costs, estimate);
    OrRefusal<JobPlan> plan = simulated(request_, partitioner_, compute_,
                                        CutModel{std::move(*costs), *cuts, std::move(estimate)});
    if (plan)
      unlimited_ = UnlimitedPlan{std::move(*plan), input_share};
    else
      unlimited_ = plan.refusal();
  }

  /// Least seconds of the slowest stage for all micro-batches under any cuts that fit, where each
  /// rank has one stage; 0 where it is unknown, nothing where some layer does not fit.
  std::optional<double> least_seconds() const {
    if (compute_.stages != compute_.rank_count() || compute_.replica_count() > 1) return 0.0;
    const OrRefusal<partition::SegmentCosts> costs = costs_for(request_, compute_);
    if (!costs) return std::nullopt;
    const auto solved = partition::least_time_cuts(*costs);
    // The way back of the first part may begin before the last one has left.
    const double passes = static_cast<double>(compute_.all_micro_batches()) - 0.5;
    return solved ? solved->worst * passes : 0.0;
  }

  /// `kPruned` where no kind of memory reduction can be fast enough, `kDeferred` where none is
  /// likely to be; nothing where the cuts are worth planning, or fail for another reason.
  std::optional<Refusal> given_up(bool may_offload) const {
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
          .sentence = message(
              "its slowest stage takes {} s for all micro-batches; another choice takes {} s",
              *least, incumbent_.all)};
    if (is_faster(without / kMostGainOfCuts, incumbent_.deferred)) return std::nullopt;
    return Refusal{.cause = Refusal::Cause::kDeferred,
                   .sentence = message("it takes {} s with unlimited memory, and more with memory "
                                       "reduction; another choice takes {} s",
                                       without, incumbent_.deferred),
                   .seconds = without};
  }

  /// The cuts of the plan with unlimited memory, with whole stashes swapped in the idle time of
  /// ranks.
  OrRefusal<JobPlan> with_idle_offload() const {
    const OrRefusal<UnlimitedPlan>& unlimited = *unlimited_;
    if (!unlimited) return unlimited.refusal();
    JobPlan plan = unlimited->plan;
    plan.memory_reduction = JobMemoryReduction::kIdleOffload;
    Bytes fixed;
    for (const RankMemory& rank : plan.memory) fixed = std::max(fixed, rank.fixed);
    if (fixed >= request_.device_memory) {
      const SizesApart sizes = sizes_apart(fixed, request_.device_memory);
      return no_plan("a rank holds {} before its first action, and its device has {}", sizes.first,
                     sizes.second);
    }
    // The passes know actions; what no action moves has its room beforehand.
    plan.costs.memory = request_.device_memory - fixed;
    plan.costs.shares.input = unlimited->input_share;
    const std::size_t runs = offload_runs(compute_);
    plan.actions = may_recompute_all(request_.chain)
                       ? planner_schedule::with_memory_fitted(plan.actions, plan.costs, runs)
                       : planner_schedule::with_swapped_stashes(plan.actions, plan.costs, runs);
    set_timing(request_, planner_schedule::time_schedule(plan.actions, plan.costs), plan);
    if (auto lack = lack_of_room(request_, plan)) return std::move(*lack);
    // The cuts were made with unlimited memory; the swaps of the action lists fit it into the
    // devices.
    for (std::size_t k = 0; k < plan.stages.size(); ++k)
      plan.stages[k].memory = plan.bytes_after[k].all();
    return plan;
  }

  double offload_incumbent() const {
    return std::min({incumbent_.all, incumbent_.offload, incumbent_.cuts});
  }

  /// The plan, or the refusal, that says why nothing else was tried.
  OrRefusal<JobPlan> without_idle_offload(OrRefusal<JobPlan> plan) const {
    if (plan) {
      plan->not_tried = no_offload_;
      return plan;
    }
    Refusal reason = plan.refusal();
    // Senseless counts have no better chance by other ways to save memory.
    if (reason.cause != Refusal::Cause::kRequest) reason.sentence += "; " + no_offload_;
    return reason;
  }

  const JobRequest& request_;
  const partition::Partitioner& partitioner_;
  const schedule::Schedule& compute_;
  const IncumbentSeconds incumbent_;
  CutMemo& memo_;
  const std::string no_offload_;  ///< Why idle-time offload is not tried; empty: it is.
  std::optional<OrRefusal<UnlimitedPlan>> unlimited_;  ///< Made once, where it is asked for.
};

}  // namespace

std::uint64_t stage_passes(const schedule::Schedule& compute) {
  return compute.all_micro_batches() * compute.stages;
}

OrRefusal<JobPlan> plan_under_cuts(const JobRequest& request,
                                   const partition::Partitioner& partitioner,
                                   const schedule::Schedule& compute,
                                   const IncumbentSeconds& incumbent, CutMemo& memo) {
  return CutPlanner(request, partitioner, compute, incumbent, memo).plan();
}

}  // namespace spillway::job
