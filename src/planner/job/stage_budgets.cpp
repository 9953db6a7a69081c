#include "stage_budgets.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "job_assembly.h"
#include "job_costs.h"
#include "refusing_call.h"
#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

/// In which room is taken away. Two do where a rank has two stages.
constexpr std::size_t kMostSteps = 4;

/// The first stage that does not fit.
Refusal too_full(const SegmentCosts& costs, const PartitionEstimate& estimate) {
  const auto is_too_full = [](const StageEstimate& stage) { return std::isinf(stage.seconds); };
  const auto stage = std::find_if(estimate.stages.begin(), estimate.stages.end(), is_too_full);
  const auto index = static_cast<std::uint32_t>(stage - estimate.stages.begin());
  return {.sentence = message(
              "stage {}, layers {} to {}, takes {} before swaps and recomputation, which cannot "
              "bring it below {} (let the partitioner 'spillway' cut, or use more ranks or more "
              "memory)",
              index, stage->first_layer, stage->last_layer, stage->raw_memory,
              costs.problem().devices[index].memory)};
}

/// A model cut into stages, with what each does about its memory.
struct CutModel {
  SegmentCosts costs;
  PartitionEstimate estimate;
};

/// These cuts, or else those with the least memory on the fullest stage, when stages swap and
/// recompute all they can however long it takes, and devices have no end. Throws as problem_for and
/// SegmentCosts where something else than memory is in the way.
CutModel least_memory_model(const JobRequest& request, const Schedule& schedule,
                            const std::optional<Cuts>& cuts) {
  constexpr double kLongEnough = 1e12;
  JobRequest unlimited = request;
  unlimited.device_memory = kNoLimit;
  SegmentCosts costs(problem_for(unlimited, schedule));
  if (cuts) {
    PartitionEstimate estimate = evaluate_memory(costs, *cuts, kLongEnough);
    return {std::move(costs), std::move(estimate)};
  }
  const auto least = least_memory_cuts(costs, kLongEnough);
  if (!least) throw PlanError("a micro-batch takes more than {} s on a stage", kLongEnough);
  PartitionEstimate estimate = evaluate_memory(costs, least->cuts, kLongEnough);
  return {std::move(costs), std::move(estimate)};
}

std::vector<std::set<std::uint32_t>> stages_of_ranks(const Schedule& schedule) {
  std::vector<std::set<std::uint32_t>> stages(schedule.rank_count());
  for (std::uint32_t replica = 0; replica < schedule.replica_count(); ++replica)
    for (std::uint32_t stage = 0; stage < schedule.stages; ++stage)
      stages[schedule.rank_of(replica, stage)].insert(stage);
  return stages;
}

struct TightPlan {
  JobPlan plan;
  Cuts cuts;
};

/// What the stages of one plan may hold, as it changes from trial to trial.
class StageBudgets {
 public:
  StageBudgets(const JobRequest& request, const Partitioner& partitioner, const Schedule& compute,
               PartitionProblem problem, double incumbent_seconds, CutMemo& memo)
      : request_(request),
        partitioner_(partitioner),
        compute_(compute),
        incumbent_seconds_(incumbent_seconds),
        memo_(memo),
        problem_(std::move(problem)),
        by_rank_(stages_of_ranks(compute)) {}

  /// The plan under the partitioner's cuts. `cuts` are them, also where they do not fit.
  OrRefusal<JobPlan> cut(std::optional<Cuts>& cuts) const {
    cuts.reset();
    const OrRefusal<SegmentCosts> costs = refusing([&] { return SegmentCosts(problem_); });
    if (!costs) return costs.refusal();
    const OrRefusal<Cuts> found = cuts_for(request_, partitioner_, *costs, memo_);
    if (!found) return found.refusal();
    cuts = *found;
    return evaluated(*costs, *cuts);
  }

  /// Under the cuts that hold least, or under those that are given, whatever it takes: how stages
  /// look then, and how full ranks are.
  OrRefusal<TightPlan> tightest(const std::optional<Cuts>& given) const {
    const OrRefusal<CutModel> tight =
        refusing([&] { return least_memory_model(request_, compute_, given); });
    if (!tight) return tight.refusal();
    Cuts cuts{0};
    for (std::uint32_t k = 0; k < tight->estimate.stages.size(); ++k)
      cuts.push_back(segment_of(tight->costs, tight->estimate.stages[k], k).end);
    OrRefusal<JobPlan> plan =
        simulated(request_, partitioner_, compute_, tight->costs, tight->estimate);
    if (!plan) return plan.refusal();
    return TightPlan{std::move(*plan), std::move(cuts)};
  }

  /// What was found to fit, with the times that it takes.
  OrRefusal<JobPlan> within(const TightPlan& tight) {
    for (std::uint32_t stage = 0; stage < compute_.stages; ++stage)
      problem_.devices[stage].memory = tight.plan.stages[stage].memory;
    const OrRefusal<SegmentCosts> costs = refusing([&] { return SegmentCosts(problem_); });
    if (!costs) return costs.refusal();
    return evaluated(*costs, tight.cuts);
  }

  /// Stages of ranks that are too full get less: step by step, for they share what is lacking in
  /// parts that nobody knows, and at last as if each one had it all.
  void take_away(const JobPlan& full) {
    ++steps_;
    std::vector<Bytes> less(compute_.stages);
    for (std::uint32_t rank = 0; rank < by_rank_.size(); ++rank) {
      if (full.memory[rank].peak <= request_.device_memory) continue;
      const Bytes lack = full.memory[rank].peak - request_.device_memory;
      const std::size_t parts = std::min(by_rank_[rank].size(), kMostSteps);
      const Bytes part = Bytes(1) + lack * std::min(steps_, parts) / parts;
      for (const std::uint32_t stage : by_rank_[rank]) less[stage] = std::max(less[stage], part);
    }
    for (std::uint32_t stage = 0; stage < less.size(); ++stage) {
      if (less[stage] == Bytes(0)) continue;
      Bytes& room = problem_.devices[stage].memory;
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
        free[stage] = std::min(free[stage], request_.device_memory - tight.memory[rank].peak);
    for (std::uint32_t stage = 0; stage < free.size(); ++stage)
      problem_.devices[stage].memory = tight.stages[stage].memory + free[stage];
  }

 private:
  bool is_too_slow(const std::vector<double>& stage_seconds) const {
    return busiest_rank_seconds(compute_, stage_seconds) >= incumbent_seconds_;
  }

  OrRefusal<JobPlan> evaluated(const SegmentCosts& costs, const Cuts& cuts) const {
    const Refusal too_slow{.cause = Refusal::Cause::kPruned,
                           .sentence = "a rank computes for longer than other cuts take"};
    std::vector<double> seconds;
    for (std::uint32_t k = 0; k + 1 < cuts.size(); ++k)
      seconds.push_back(costs.load({cuts[k], cuts[k + 1], k}).seconds);
    if (is_too_slow(seconds)) return too_slow;
    const PartitionEstimate estimate = evaluate(costs, cuts);
    if (!estimate.fits) return too_full(costs, estimate);
    for (std::uint32_t k = 0; k < seconds.size(); ++k)
      seconds[k] += estimate.stages[k].recompute_seconds;
    if (is_too_slow(seconds)) return too_slow;
    return simulated(request_, partitioner_, compute_, costs, estimate);
  }

  const JobRequest& request_;
  const Partitioner& partitioner_;
  const Schedule& compute_;
  const double incumbent_seconds_;
  CutMemo& memo_;
  PartitionProblem problem_;
  std::vector<std::set<std::uint32_t>> by_rank_;
  std::size_t steps_ = 0;
};

}  // namespace

OrRefusal<JobPlan> reduced_by_stage(const JobRequest& request, const Partitioner& partitioner,
                                    const Schedule& compute, double incumbent_seconds,
                                    CutMemo& memo) {
  OrRefusal<PartitionProblem> problem = refusing([&] { return problem_for(request, compute); });
  if (!problem) return problem.refusal();
  StageBudgets budgets(request, partitioner, compute, std::move(*problem), incumbent_seconds, memo);
  std::optional<Cuts> cuts;
  bool was_tight = false;
  for (bool is_first = true; budgets.steps() < kMostSteps; is_first = false) {
    OrRefusal<JobPlan> plan = budgets.cut(cuts);
    if (plan && plan->peak() <= request.device_memory) return with_room(request, std::move(plan));
    if (plan) {
      budgets.take_away(*plan);
      continue;
    }
    const Refusal& reason = plan.refusal();
    if (reason.is_given_up() || request.device_memory == kNoLimit) return plan;
    const OrRefusal<TightPlan> tight = budgets.tightest(cuts);
    if (!tight) return tight.refusal();
    if (tight->plan.peak() > request.device_memory && is_first)
      return Refusal{Refusal::Cause::kRoom, reason.sentence, fullest_rank(tight->plan),
                     tight->plan.peak()};
    if (auto lack = lack_of_room(request, tight->plan)) return std::move(*lack);
    if (was_tight && !cuts) return plan;  // This partitioner does not find them.
    if (was_tight) return with_room(request, budgets.within(*tight));
    was_tight = true;
    budgets.give_back(tight->plan);
  }
  const OrRefusal<TightPlan> tight = budgets.tightest(cuts);
  if (!tight) return tight.refusal();
  if (auto lack = lack_of_room(request, tight->plan)) return std::move(*lack);
  return with_room(request, budgets.within(*tight));
}

}  // namespace spillway::planner
