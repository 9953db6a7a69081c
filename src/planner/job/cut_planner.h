#pragma once

#include <optional>
#include <string>

#include "spillway/planner/job/job_plan.h"
#include "spillway/planner/job/plan_memo.h"
#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner {

/// How much faster a step may become by other cuts than those that are made with unlimited memory,
/// or for the slowest stage: a step is more than that. Seen: a fifth.
inline constexpr double kMostGainOfCuts = 1.25;

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

  /// Made at the first call.
  const OrRefusal<UnlimitedPlan>& unlimited();
  OrRefusal<UnlimitedPlan> make_unlimited() const;
  /// Least seconds of the slowest stage for all micro-batches under any cuts that fit, where each
  /// rank has one stage; 0 where it is unknown, nothing where some layer does not fit.
  std::optional<double> least_seconds() const;
  /// `kPruned` where no kind of memory reduction can be fast enough, `kDeferred` where none is
  /// likely to be; nothing where the cuts are worth planning, or fail for another reason.
  std::optional<Refusal> given_up(bool may_offload);
  /// The cuts of the plan with unlimited memory, with whole stashes swapped in the idle time of
  /// ranks.
  OrRefusal<JobPlan> with_idle_offload();
  OrRefusal<JobPlan> by_idle_offload_alone();
  double offload_incumbent() const;
  /// Whether idle-time offload may be faster: it only adds time to the plan with unlimited memory.
  bool can_offload_win(const OrRefusal<JobPlan>& by_stage);
  /// The faster plan; of two refusals for lack of room the nearer one, else the first one.
  OrRefusal<JobPlan> or_by_idle_offload(OrRefusal<JobPlan> stages);

  const JobRequest& request_;
  const Partitioner& partitioner_;
  const Schedule& compute_;
  const IncumbentSeconds incumbent_;
  CutMemo& memo_;
  const std::string no_offload_;  ///< Why idle-time offload is not tried; empty: it is.
  std::optional<OrRefusal<UnlimitedPlan>> unlimited_;
};

}  // namespace spillway::planner
