#pragma once

#include <optional>
#include <string>

#include "spillway/planner/job/job_plan.h"
#include "spillway/planner/job/plan_memo.h"
#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner {

/// Plans action lists of compute under the cuts of one partitioner, with the layers as the request
/// has them: as cut, or with the fastest kind of memory reduction, where it is open.
class CutPlanner {
 public:
  /// `memo` is of this chain. All but the incumbent must outlive it.
  CutPlanner(const JobRequest& request, const Partitioner& partitioner, const Schedule& compute,
             const IncumbentSeconds& incumbent, CutMemo& memo);

  /// Refused as `plan_choice`.
  OrRefusal<JobPlan> plan();

 private:
  /// The plan with unlimited memory, and the share of its stashes that are inputs of stages.
  struct UnlimitedPlan {
    JobPlan plan;
    double input_share = 0.0;
  };

  /// Sets `unlimited_`, which the calls below read.
  void plan_unlimited();
  /// Least seconds of the slowest stage for all micro-batches under any cuts that fit, where each
  /// rank has one stage; 0 where it is unknown, nothing where some layer does not fit.
  std::optional<double> least_seconds() const;
  /// `kPruned` where no kind of memory reduction can be fast enough, `kDeferred` where none is
  /// likely to be; nothing where the cuts are worth planning, or fail for another reason.
  std::optional<Refusal> given_up(bool may_offload) const;
  /// The cuts of the plan with unlimited memory, with whole stashes swapped in the idle time of
  /// ranks.
  OrRefusal<JobPlan> with_idle_offload() const;
  double offload_incumbent() const;
  /// The plan, or the refusal, that says why nothing else was tried.
  OrRefusal<JobPlan> without_idle_offload(OrRefusal<JobPlan> plan) const;

  const JobRequest& request_;
  const Partitioner& partitioner_;
  const Schedule& compute_;
  const IncumbentSeconds incumbent_;
  CutMemo& memo_;
  const std::string no_offload_;  ///< Why idle-time offload is not tried; empty: it is.
  std::optional<OrRefusal<UnlimitedPlan>> unlimited_;  ///< Made once, where it is asked for.
};

}  // namespace spillway::planner
