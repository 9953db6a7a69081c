#pragma once

#include <string>
#include <vector>

#include "planning/planning_step.h"
#include "spillway/base/clock.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/step_bound.h"
#include "spillway/planner/step_events.h"
#include "spillway/planner/step_plan.h"
#include "spillway/planner/strategies.h"

namespace spillway::cli {

/// Stall of a step for operators of one kind, or for one value.
struct StallCause {
  std::string what;
  double pages_seconds = 0.0;  ///< Waiting for tensors to come in.
  double room_seconds = 0.0;   ///< Waiting for others to leave.
  std::uint32_t count = 0;     ///< Operators of the kind that waited, or waits for the value.

  double seconds() const { return pages_seconds + room_seconds; }
};

/// A plan in numbers: what the event model says of it, and more.
struct PlanFigures : planner::StepEstimate {
  std::string strategy;
  std::string source;   ///< The paper or repository that the strategy follows; empty for ours.
  std::string refusal;  ///< Why the strategy has no plan for this budget: then nothing else holds.
  Bytes budget;
  double bound_seconds = 0.0;
  planner::StepBound bound;  ///< The bound, with its cause.
  Bytes written, read, peak;
  Bytes far_written, far_read;  ///< Part of these: to and from the far one of two tiers.
  Bytes host_peak;              ///< Most of the near one that is taken.
  double recompute_seconds = 0.0;
  std::uint64_t recomputed_values = 0;
  std::uint64_t replayed_operators = 0;
  Bytes forced_out;
  double planning_seconds = 0.0;
  bool ran_out_of_memory = false;              ///< That is the refusal.
  bool cannot_replay = false;                  ///< Or that a replay would find other inputs.
  bool was_cut = false;                        ///< The search ended when its time was over.
  std::vector<StallCause> stalls_by_operator;  ///< Largest first.
  std::vector<StallCause> stalls_by_value;

  bool is_possible() const { return refusal.empty(); }
  /// By how much of itself the bound is exceeded.
  double gap() const { return share_above(step_seconds, bound_seconds); }
};

/// A plan and its figures.
struct EvaluatedPlan {
  planner::StepPlan plan;
  PlanFigures figures;
};

/// A step under one budget. Every plan for it is evaluated by the same bound, whatever it does.
struct PlanningCase {
  const PlanningStep& step;
  Bytes budget;
  planner::SwapLimits limits;
  planner::StepBound bound;
};

/// After so many seconds our own strategies end their search with the best plan so far. Published
/// ones take what they take.
inline constexpr double kSecondsForOnePlan = 10.0;
inline constexpr double kSecondsOfMany = 2.0;  ///< For each.

enum class BoundEffort : std::uint8_t {
  kQuick,
  kTight,  ///< Solves a linear program, too: seconds for long steps.
};

/// Throws PlanError when memory runs out.
PlanningCase case_for(const PlanningStep& step, Bytes budget, const planner::SwapLimits& limits,
                      BoundEffort effort);

PlanFigures figures_of(const PlanningCase& planning, const planner::StepPlan& plan);

/// Plans with a strategy. One that cannot serve this step gives a refusal instead of a plan.
EvaluatedPlan plan_with(const planner::Strategy& strategy, const PlanningCase& planning,
                        double most_seconds, const Clock& clock);

}  // namespace spillway::cli
