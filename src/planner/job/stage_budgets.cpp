#include "stage_budgets.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "job_assembly.h"
#include "job_costs.h"
#include "least_memory_model.h"
#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

/// In which room is taken away. Two do where a rank has two stages.
constexpr std::size_t kMostSteps = 4;

void require_fit(const SegmentCosts& costs, const PartitionEstimate& estimate) {
  if (estimate.fits) return;
  const auto is_too_full = [](const StageEstimate& stage) { return std::isinf(stage.seconds); };
  const auto stage = std::find_if(estimate.stages.begin(), estimate.stages.end(), is_too_full);
  const auto index = static_cast<std::uint32_t>(stage - estimate.stages.begin());
  throw PlanError(
      "stage {}, layers {} to {}, takes {} before swaps and recomputation, which cannot "
      "bring it below {} (let the partitioner 'spillway' cut, or use more ranks or "
      "more memory)",
      index, stage->first_layer, stage->last_layer, stage->raw_memory,
      costs.problem().devices[index].memory);
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
               double incumbent_seconds, CutMemo& memo)
      : request_(request),
        partitioner_(partitioner),
        compute_(compute),
        incumbent_seconds_(incumbent_seconds),
        memo_(memo),
        problem_(problem_for(request, compute)),
        by_rank_(stages_of_ranks(compute)) {}

  /// The plan under the partitioner's cuts. `cuts` are them, also where they do not fit.
  JobPlan cut(std::optional<Cuts>& cuts) const {
    cuts.reset();
    const SegmentCosts costs(problem_);
    cuts = cuts_for(request_, partitioner_, costs, memo_);
    return evaluated(costs, *cuts);
  }

  /// Under the cuts that hold least, or under those that are given, whatever it takes: how stages
  /// look then, and how full ranks are.
  TightPlan tightest(const std::optional<Cuts>& given) const {
    const CutModel tight = least_memory_model(request_, compute_, given);
    Cuts cuts{0};
    for (std::uint32_t k = 0; k < tight.estimate.stages.size(); ++k)
      cuts.push_back(segment_of(tight.costs, tight.estimate.stages[k], k).end);
    return {timed(request_, started(request_, partitioner_, compute_, tight.costs, tight.estimate)),
            std::move(cuts)};
  }

  /// What was found to fit, with the times that it takes.
  JobPlan within(const TightPlan& tight) {
    for (std::uint32_t stage = 0; stage < compute_.stages; ++stage)
      problem_.devices[stage].memory = tight.plan.stages[stage].memory;
    return evaluated(SegmentCosts(problem_), tight.cuts);
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
  void require_faster(const std::vector<double>& stage_seconds) const {
    if (busiest_rank_seconds(compute_, stage_seconds) >= incumbent_seconds_)
      throw TooSlowError("a rank computes for longer than other cuts take");
  }

  JobPlan evaluated(const SegmentCosts& costs, const Cuts& cuts) const {
    std::vector<double> seconds;
    for (std::uint32_t k = 0; k + 1 < cuts.size(); ++k)
      seconds.push_back(costs.load({cuts[k], cuts[k + 1], k}).seconds);
    require_faster(seconds);
    const PartitionEstimate estimate = evaluate(costs, cuts);
    require_fit(costs, estimate);
    for (std::uint32_t k = 0; k < seconds.size(); ++k)
      seconds[k] += estimate.stages[k].recompute_seconds;
    require_faster(seconds);
    return timed(request_, started(request_, partitioner_, compute_, costs, estimate));
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

JobPlan unlimited(const JobRequest& request, JobPlan plan) {
  require_room(request, plan);
  return plan;
}

}  // namespace

JobPlan reduced_by_stage(const JobRequest& request, const Partitioner& partitioner,
                         const Schedule& compute, double incumbent_seconds, CutMemo& memo) {
  StageBudgets budgets(request, partitioner, compute, incumbent_seconds, memo);
  std::optional<Cuts> cuts;
  bool is_first = true;
  bool was_tight = false;
  for (; budgets.steps() < kMostSteps; is_first = false) {
    std::optional<JobPlan> plan;
    try {
      plan = budgets.cut(cuts);
    } catch (const TooSlowError&) {
      throw;
    } catch (const Error& error) {
      if (request.device_memory == kNoLimit) throw;
      const TightPlan tight = budgets.tightest(cuts);
      if (tight.plan.peak() > request.device_memory && is_first)
        throw NoRoomError(error.what(), fullest_rank(tight.plan), tight.plan.peak());
      require_room(request, tight.plan);
      if (was_tight && !cuts) throw;  // This partitioner does not find them.
      if (was_tight) return unlimited(request, budgets.within(tight));
      was_tight = true;
      budgets.give_back(tight.plan);
      continue;
    }
    if (plan->peak() <= request.device_memory) return unlimited(request, std::move(*plan));
    budgets.take_away(*plan);
  }
  const TightPlan tight = budgets.tightest(cuts);
  require_room(request, tight.plan);
  return unlimited(request, budgets.within(tight));
}

}  // namespace spillway::planner
