#include "stage_budgets.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "job_assembly.h"
#include "job_costs.h"
#include "search_limits.h"
#include "spillway/base/error.h"
#include "spillway/planner/schedule/refusal.h"

namespace spillway::planner {
namespace {

/// The first stage that does not fit.
Refusal too_full(const SegmentCosts& costs, const PartitionEstimate& estimate) {
  const auto is_too_full = [](const StageEstimate& stage) { return std::isinf(stage.seconds); };
  const auto stage = std::find_if(estimate.stages.begin(), estimate.stages.end(), is_too_full);
  const auto index = static_cast<std::uint32_t>(stage - estimate.stages.begin());
  return no_plan("stage {}, layers {} to {}, takes {} before swaps and recomputation, which cannot "
                 "bring it below {} (let the partitioner 'spillway' cut, or use more ranks or more "
                 "memory)",
                 index, stage->first_layer, stage->last_layer, stage->raw_memory,
                 costs.problem().devices[index].memory);
}

/// These cuts, or else those with the least memory on the fullest stage, when stages swap and
/// recompute all they can however long it takes, and devices have no end. Refused where something
/// else than memory is in the way.
OrRefusal<CutModel> least_memory_model(const JobRequest& request, const Schedule& schedule,
                                       std::optional<Cuts> cuts) {
  constexpr double kLongEnough = 1e12;
  OrRefusal<SegmentCosts> costs = costs_for(unlimited(request), schedule);
  if (!costs) return costs.refusal();
  if (!cuts) {
    auto least = least_memory_cuts(*costs, kLongEnough);
    if (!least) return no_plan("a micro-batch takes more than {} s on a stage", kLongEnough);
    cuts = std::move(least->cuts);
  }
  PartitionEstimate estimate = evaluate_memory(*costs, *cuts, kLongEnough);
  return CutModel{std::move(*costs), std::move(*cuts), std::move(estimate)};
}

std::vector<std::set<std::uint32_t>> stages_of_ranks(const Schedule& schedule) {
  std::vector<std::set<std::uint32_t>> stages(schedule.rank_count());
  for (std::uint32_t replica = 0; replica < schedule.replica_count(); ++replica)
    for (std::uint32_t stage = 0; stage < schedule.stages; ++stage)
      stages[schedule.rank_of(replica, stage)].insert(stage);
  return stages;
}

/// What the stages of one plan may hold, as it changes from trial to trial.
class StageBudgets {
 public:
  StageBudgets(const JobRequest& request, const Schedule& compute, PartitionProblem problem,
               double incumbent_seconds)
      : request_(request),
        compute_(compute),
        incumbent_seconds_(incumbent_seconds),
        problem_(std::move(problem)),
        by_rank_(stages_of_ranks(compute)) {}

  /// The partitioner's cuts. `cuts` are them, also where they do not fit.
  OrRefusal<CutModel> cut(const Partitioner& partitioner, CutMemo& memo,
                          std::optional<Cuts>& cuts) const {
    cuts.reset();
    OrRefusal<SegmentCosts> costs = costs_of(problem_);
    if (!costs) return costs.refusal();
    const OrRefusal<Cuts> found = cuts_for(request_, partitioner, *costs, memo);
    if (!found) return found.refusal();
    cuts = *found;
    return evaluated(std::move(*costs), *cuts);
  }

  /// These cuts, which were found to fit with stages as `tight` has them.
  OrRefusal<CutModel> within(const JobPlan& tight, const Cuts& cuts) {
    for (std::uint32_t stage = 0; stage < compute_.stages; ++stage)
      problem_.devices[stage].memory = tight.stages[stage].memory;
    OrRefusal<SegmentCosts> costs = costs_of(problem_);
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
    std::vector<Bytes> free(compute_.stages, kNoLimit);
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

  OrRefusal<CutModel> evaluated(SegmentCosts costs, const Cuts& cuts) const {
    const Refusal too_slow{.cause = Refusal::Cause::kPruned,
                           .sentence = "a rank computes for longer than other cuts take"};
    std::vector<double> seconds;
    for (std::uint32_t k = 0; k + 1 < cuts.size(); ++k)
      seconds.push_back(costs.load({cuts[k], cuts[k + 1], k}).seconds);
    if (is_too_slow(seconds)) return too_slow;
    PartitionEstimate estimate = evaluate(costs, cuts);
    if (!estimate.fits) return too_full(costs, estimate);
    for (std::uint32_t k = 0; k < seconds.size(); ++k)
      seconds[k] += estimate.stages[k].recompute_seconds;
    if (is_too_slow(seconds)) return too_slow;
    return CutModel{std::move(costs), cuts, std::move(estimate)};
  }

  const JobRequest& request_;
  const Schedule& compute_;
  const double incumbent_seconds_;
  PartitionProblem problem_;
  std::vector<std::set<std::uint32_t>> by_rank_;
  std::size_t steps_ = 0;
};

}  // namespace

OrRefusal<JobPlan> reduced_by_stage(const JobRequest& request, const Partitioner& partitioner,
                                    const Schedule& compute, double incumbent_seconds,
                                    CutMemo& memo) {
  StageBudgets budgets(request, compute, problem_for(request, compute), incumbent_seconds);
  std::optional<Cuts> cuts;
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
    if (reason.is_given_up() || request.device_memory == kNoLimit) return plan;
    // How stages look, and how full ranks are, with the least memory whatever it takes.
    const OrRefusal<CutModel> least = least_memory_model(request, compute, cuts);
    const OrRefusal<JobPlan> tight = simulated(request, partitioner, compute, least);
    if (!tight) return tight.refusal();
    if (tight->peak() > request.device_memory && is_first)
      return Refusal{Refusal::Cause::kRoom, reason.sentence, fullest_rank(*tight), tight->peak()};
    if (auto lack = lack_of_room(request, *tight)) return std::move(*lack);
    if (was_tight && !cuts) return plan;  // This partitioner does not find them.
    if (was_tight || is_last)
      return with_room(
          request, simulated(request, partitioner, compute, budgets.within(*tight, least->cuts)));
    was_tight = true;
    budgets.give_back(*tight);
  }
}

}  // namespace spillway::planner
