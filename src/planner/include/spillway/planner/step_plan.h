#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "spillway/planner/recomputation.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// Which values to keep, to swap and to recompute during a repeating step, and when. `bound_plan`
/// says what no plan can beat.
struct StepPlan {
  std::string strategy;         ///< Strategy that made the plan.
  std::vector<Replay> replays;  ///< Positions in the original tape, sorted by `before`.
  RewrittenTape steps;          ///< The tape with the replays, which `swaps` refers to.
  SwapPlan swaps;               ///< Its estimate and needs hold for the whole plan.
  double replay_seconds = 0.0;  ///< Compute time of the replays, part of the estimate.
};

/// How long to search. Planning has no clock: whoever has one says when to stop.
struct PlanEffort {
  /// Asked between attempts; true ends the search with the best plan so far. Never asked before
  /// there is one.
  StopCheck should_stop;
  /// Called with each plan that is better than all before, the first one included.
  std::function<void(const StepPlan&)> on_better;
  /// A plan that was made for these operators and values at other times, rates or limits, from
  /// which the search goes on; null: none.
  const StepPlan* known = nullptr;
};

/// Decides together which values to keep, to swap and to recompute, so that the repeating step fits
/// into the budget and is fast. Deterministic as long as nobody stops it. Throws PlanError for a
/// tape that contradicts itself and ConfigError for senseless limits.
StepPlan plan_step(const StepTape& tape, const SwapLimits& limits, const PlanEffort& effort = {});

/// Values of the tape that are dropped, by the operator of the rewritten one after which they go.
PerOp drops_per_op(const StepTape& tape, const RewrittenTape& steps);

/// The plan for given replays, or for none: the best swaps on the rewritten tape, or the best so
/// far when told to stop. They are chosen by the structure of the tape first; then share of the
/// budget, moments and single swaps by simulation. Deterministic as long as nobody stops it. Throws
/// as `rewrite_tape` and `plan_step`.
StepPlan plan_with_replays(const StepTape& tape, std::vector<Replay> replays,
                           const SwapLimits& limits, const StopCheck& should_stop = {});

}  // namespace spillway::planner
