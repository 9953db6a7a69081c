#include "job_memory_reduction.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>

#include "job_assembly.h"
#include "job_costs.h"
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
  constexpr std::uint64_t kMostRuns = 200;
  constexpr std::uint64_t kMostPassesOfAllRuns = 1024 * kMostRuns;
  return std::clamp<std::uint64_t>(kMostPassesOfAllRuns / passes_of(compute), 1, kMostRuns);
}

/// Whether there is a link to swap over, and a limit of memory that is a reason to.
bool can_offload(const JobRequest& request) {
  return request.swap_bytes_per_second > 0.0 && request.device_memory != kNoLimit;
}

/// The reason why idle-time offload is not tried; empty: it is.
std::string problem_of_offload(const JobRequest& request, const Schedule& compute) {
  constexpr std::uint64_t kMostPasses = 1U << 14U;
  if (!can_offload(request))
    return "idle-time offload needs a limit of device memory and a link to the host (name both, or "
           "let stages "
           "reduce their own memory)";
  if (passes_of(compute) <= kMostPasses) return {};
  return message("swaps in idle time were not tried: {} passes of micro-batches through stages "
                 "are more than {}",
                 passes_of(compute), kMostPasses);
}

[[noreturn]] void refuse_without_offload(const std::exception_ptr& reason,
                                         const std::string& no_offload) {
  try {
    std::rethrow_exception(reason);
  } catch (const NoRoomError& error) {
    throw NoRoomError(message("{}; {}", error.what(), no_offload), error.rank(), error.needed());
  } catch (const PlanError& error) {
    throw PlanError("{}; {}", error.what(), no_offload);
  }
}

class MemoryReductionSearch {
 public:
  MemoryReductionSearch(const JobRequest& request, const Partitioner& partitioner,
                        const Schedule& compute, const IncumbentSeconds& incumbent, CutMemo& memo)
      : request_(request),
        partitioner_(partitioner),
        compute_(compute),
        incumbent_(incumbent),
        memo_(memo),
        no_offload_(problem_of_offload(request, compute)) {}

  JobPlan find() {
    if (request_.variant.memory_reduction == JobMemoryReduction::kIdleOffload) {
      if (!no_offload_.empty()) throw PlanError("{}", no_offload_);
      if (!is_faster(unlimited().plan.step_seconds, incumbent_.cuts))
        throw TooSlowError("idle-time offload is no faster than these cuts with unlimited memory");
      return with_idle_offload();
    }
    if (request_.device_memory == kNoLimit) return by_stage(request_, incumbent_.cuts);
    const bool is_open = !request_.variant.memory_reduction;
    require_hope(/*may_offload=*/is_open);
    if (!can_offload(request_) ||
        request_.variant.memory_reduction == JobMemoryReduction::kRecompute)
      return by_stage(request_, incumbent_.cuts);
    return is_open ? by_the_fastest_kind() : by_any_share();
  }

 private:
  /// The plan with unlimited memory, and the share of its stashes that are inputs of stages.
  struct UnlimitedPlan {
    JobPlan plan;
    double input_share = 0.0;
  };

  JobPlan by_stage(const JobRequest& request, double incumbent_seconds) {
    JobPlan plan = reduced_by_stage(request, partitioner_, compute_, incumbent_seconds, memo_);
    plan.memory_reduction = request.variant.memory_reduction.value_or(JobMemoryReduction::kStages);
    return plan;
  }

  /// The fastest plan among those with the whole bandwidth of the link, and with a half and a
  /// quarter of it as long as ranks stall for swaps or hosts lack memory for them. (`make_job_plan`
  /// tries it without the link.) Cuts know swaps as a rate beside compute, but forwards in a row
  /// leave less time for them. Throws what the first try throws.
  JobPlan by_any_share() {
    std::optional<JobPlan> best;
    std::exception_ptr reason;
    JobRequest request = request_;
    for (const double share : {1.0, 0.5, 0.25}) {
      request.stage_swap_share = share;
      try {
        JobPlan plan = by_stage(request, best ? best->step_seconds : incumbent_.cuts);
        const bool waits = plan.exposed_swap_seconds() > 1e-9 * plan.step_seconds;
        if (!best || is_faster(plan.step_seconds, best->step_seconds)) best = std::move(plan);
        if (!waits) break;
      } catch (const Error&) {
        if (!reason) reason = std::current_exception();
      }
    }
    if (!best) std::rethrow_exception(reason);
    return std::move(*best);
  }

  /// The plan with unlimited memory; made at the first call.
  const UnlimitedPlan& unlimited() {
    if (unlimited_) return *unlimited_;
    JobRequest endless = request_;
    endless.device_memory = kNoLimit;
    const SegmentCosts costs(problem_for(endless, compute_));
    const PartitionEstimate estimate =
        evaluate(costs, cuts_for(request_, partitioner_, costs, memo_));
    unlimited_ =
        UnlimitedPlan{timed(request_, started(request_, partitioner_, compute_, costs, estimate)),
                      largest_input_share(costs, estimate)};
    return *unlimited_;
  }

  /// Least seconds of the slowest stage for all micro-batches under any cuts that fit, where each
  /// rank has one stage; 0 where it is unknown.
  double least_seconds() {
    if (compute_.stages != compute_.rank_count() || compute_.replica_count() > 1) return 0.0;
    const SegmentCosts costs(problem_for(request_, compute_));
    const auto solved = least_time_cuts(costs);
    // The way back of the first part may begin before the last one has left.
    const double passes = static_cast<double>(compute_.all_micro_batches()) - 0.5;
    return solved ? solved->worst * passes : 0.0;
  }

  /// Throws TooSlowError where no kind of memory reduction can be fast enough, DeferredError where
  /// none is likely to be.
  void require_hope(bool may_offload) {
    if (incumbent_.all == kNoTime && incumbent_.deferred == kNoTime) return;
    double without = 0.0;
    double least = 0.0;
    try {
      without = unlimited().plan.step_seconds;
      least = least_seconds();
    } catch (const Error&) {
      return;  // Whatever is wrong is told elsewhere.
    }
    if (may_offload && no_offload_.empty() && is_faster(without, offload_incumbent())) return;
    const bool offload_may_win =
        may_offload && no_offload_.empty() && is_faster(without / kMostGainOfCuts, incumbent_.all);
    if (!is_faster(least, incumbent_.all) && !offload_may_win)
      throw TooSlowError("its slowest stage takes {} s for all micro-batches; another choice takes "
                         "{} s",
                         least, incumbent_.all);
    if (is_faster(without / kMostGainOfCuts, incumbent_.deferred)) return;
    throw DeferredError(
        message("it takes {} s with unlimited memory, and more with memory reduction; "
                "another choice takes {} s",
                without, incumbent_.deferred),
        without);
  }

  /// The cuts of the plan with unlimited memory, with whole stashes swapped in the idle time of
  /// ranks.
  JobPlan with_idle_offload() {
    JobPlan plan = unlimited().plan;
    plan.memory_reduction = JobMemoryReduction::kIdleOffload;
    Bytes fixed;
    for (const RankMemory& rank : plan.memory) fixed = std::max(fixed, rank.fixed);
    if (fixed >= request_.device_memory)
      throw PlanError("a rank holds {} before its first action, and its device has {}", fixed,
                      request_.device_memory);
    plan.costs.memory = request_.device_memory - fixed;
    plan.costs.shares.input = unlimited().input_share;
    const std::size_t runs = offload_runs(compute_);
    plan.actions = may_recompute_all(request_.chain)
                       ? with_memory_fitted(plan.actions, plan.costs, runs)
                       : with_swapped_stashes(plan.actions, plan.costs, runs);
    plan = finished(request_, std::move(plan));
    // The cuts were made with unlimited memory; the swaps of the action lists fit it into the
    // devices.
    for (std::size_t k = 0; k < plan.stages.size(); ++k)
      plan.stages[k].memory = plan.bytes_after[k].all();
    return plan;
  }

  double offload_incumbent() const {
    return std::min({incumbent_.all, incumbent_.offload, incumbent_.cuts});
  }

  /// Whether idle-time offload may be faster: it only adds time to the plan with unlimited memory.
  bool can_offload_win(const std::optional<JobPlan>& by_stage) {
    const double known = by_stage ? by_stage->step_seconds : offload_incumbent();
    return unlimited().plan.step_seconds < std::min(known, offload_incumbent());
  }

  JobPlan by_the_fastest_kind() {
    std::optional<JobPlan> stages;
    std::exception_ptr reason;
    Bytes needed = kNoLimit;
    try {
      stages = by_any_share();
      if (!stages->reduces_memory()) return std::move(*stages);
    } catch (const NoRoomError& error) {
      reason = std::current_exception();
      needed = error.needed();
    } catch (const Error&) {
      reason = std::current_exception();
    }
    if (!no_offload_.empty()) {
      if (!stages) refuse_without_offload(reason, no_offload_);
      stages->not_tried = no_offload_;
      return std::move(*stages);
    }
    try {
      if (can_offload_win(stages)) {
        JobPlan offload = with_idle_offload();
        if (!stages || offload.step_seconds < stages->step_seconds) return offload;
      }
    } catch (const NoRoomError& error) {
      if (!stages && error.needed() < needed) throw;  // The nearer one.
    } catch (const Error&) {
      // The first reason is told.
    }
    if (!stages) std::rethrow_exception(reason);
    return std::move(*stages);
  }

  const JobRequest& request_;
  const Partitioner& partitioner_;
  const Schedule& compute_;
  const IncumbentSeconds incumbent_;
  CutMemo& memo_;
  const std::string no_offload_;
  std::optional<UnlimitedPlan> unlimited_;
};

}  // namespace

JobPlan with_memory_reduction(const JobRequest& asked, const Partitioner& partitioner,
                              const Schedule& compute, const IncumbentSeconds& incumbent,
                              CutMemo& memo) {
  return MemoryReductionSearch(asked, partitioner, compute, incumbent, memo).find();
}

}  // namespace spillway::planner
