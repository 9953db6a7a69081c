#include "planning/plan_figures.h"

#include <algorithm>
#include <functional>
#include <map>
#include <new>
#include <set>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/clp/clp_solver.h"

namespace spillway::cli {

using planner::OpIndex;
using planner::StepEvents;
using planner::StepPlan;
using planner::ValueIndex;
using planner::WaitEvent;
using planner::WaitReason;

namespace {

void add_wait(StallCause& cause, const WaitEvent& wait) {
  const double seconds = wait.end - wait.begin;
  (wait.reason == WaitReason::kRoom ? cause.room_seconds : cause.pages_seconds) += seconds;
}

template <typename Key>
std::vector<StallCause> sorted(std::map<Key, StallCause> causes) {
  std::vector<StallCause> list;
  for (auto& [key, cause] : causes) list.push_back(std::move(cause));
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.seconds() > b.seconds(); });
  return list;
}

void find_causes(const PlanningStep& step, const StepPlan& plan, const StepEvents& events,
                 PlanFigures& figures) {
  std::map<std::uint32_t, StallCause> by_kind;
  std::map<ValueIndex, StallCause> by_value;
  std::set<OpIndex> counted;
  for (const WaitEvent& wait : events.waits) {
    const OpIndex op = plan.steps.op_of[wait.op];
    StallCause& kind = by_kind[step.profile.kind_of_op[op]];
    kind.what = operator_text(step, op);
    kind.count += counted.insert(wait.op).second ? 1 : 0;
    add_wait(kind, wait);
    if (wait.value == profile::kNoValue) continue;
    const ValueIndex original = plan.steps.value_of[wait.value];
    StallCause& value = by_value[original];
    value.what = value_text(step, original);
    ++value.count;
    add_wait(value, wait);
  }
  figures.stalls_by_operator = sorted(std::move(by_kind));
  figures.stalls_by_value = sorted(std::move(by_value));
}

StepPlan make_plan(const planner::Strategy& strategy, const PlanningCase& planning,
                   const std::function<bool()>& should_stop) {
  const profile::StepTape& tape = planning.step.profile.tape;
  // Published ones are shown whole: cut short they would not be what their papers describe.
  if (!strategy.source.empty()) return strategy.plan(tape, planning.limits);
  return strategy.plan(tape, planning.limits, should_stop);
}

/// The same as the error says, with the names of operators and values.
std::string replay_text(const PlanningStep& step, const planner::ReplayError::Cause& cause) {
  const auto named = [&](planner::OpIndex op) {
    return message("operator {}, {},", op, operator_text(step, op));
  };
  return message("it would run {} again before operator {}, but {}, which that reads, {} {} before",
                 named(cause.op), cause.before, value_text(step, cause.value),
                 cause.is_written ? "is written in place by" : "ends with", named(cause.by));
}

}  // namespace

PlanningCase case_for(const PlanningStep& step, Bytes budget, const planner::SwapLimits& limits,
                      BoundEffort effort) {
  const auto solver = effort == BoundEffort::kTight ? planner_clp::make_clp_solver() : nullptr;
  try {
    return {step, budget, limits,
            planner::bound_plan(step.profile.tape, limits, {.solver = solver.get()})};
  } catch (const std::bad_alloc&) {
    throw PlanError("memory ran out while the bound of a step of {} was computed, which every plan "
                    "is held against (give the command more memory{})",
                    counted(step.profile.tape.ops.size(), "operator"),
                    effort == BoundEffort::kTight ? ", or try --bound quick" : "");
  }
}

PlanFigures figures_of(const PlanningCase& planning, const StepPlan& plan) {
  const PlanningStep& step = planning.step;
  const planner::SwapLimits& limits = planning.limits;
  PlanFigures figures;
  figures.strategy = plan.strategy;
  figures.budget = planning.budget;
  StepEvents events;
  planner::StepEstimate& estimate = figures;
  estimate = planner::observe_step(plan.steps.tape, plan.swaps, limits, events);
  if (!estimate.is_complete) figures.refusal = "some operator finds no room";
  figures.bound_seconds = planning.bound.step_seconds;
  figures.bound = planning.bound;
  figures.written = estimate.written_pages * limits.page_size;
  figures.read = estimate.read_pages * limits.page_size;
  figures.far_written = estimate.far_written_pages * limits.page_size;
  figures.far_read = estimate.far_read_pages * limits.page_size;
  figures.host_peak = estimate.near_peak_pages * limits.page_size;
  figures.peak = in_memory(step, estimate.peak_pages);
  figures.recompute_seconds = plan.replay_seconds;
  // Each presence of a value beyond its first one was recomputed.
  figures.recomputed_values = plan.steps.tape.values.size() - step.profile.tape.values.size();
  figures.replayed_operators = plan.replays.size();
  figures.forced_out = estimate.forced_evictions * limits.page_size;
  find_causes(step, plan, events, figures);
  return figures;
}

EvaluatedPlan plan_with(const planner::Strategy& strategy, const PlanningCase& planning,
                        double most_seconds, const Clock& clock) {
  EvaluatedPlan evaluated;
  const TimePoint begin = clock.now();
  try {
    evaluated.plan = make_plan(strategy, planning, [&] {
      return evaluated.figures.was_cut = seconds(clock.now() - begin) >= most_seconds;
    });
  } catch (const planner::ReplayError& error) {
    evaluated.figures.refusal = replay_text(planning.step, error.cause());
    evaluated.figures.cannot_replay = true;
  } catch (const PlanError& error) {  // Rates and budgets that make no sense were refused before.
    evaluated.figures.refusal = error.what();
  } catch (const std::bad_alloc&) {
    evaluated.figures.refusal = message("memory ran out while it planned a step of {}",
                                        counted(planning.step.profile.tape.ops.size(), "operator"));
    evaluated.figures.ran_out_of_memory = true;
  }
  evaluated.figures.planning_seconds = seconds(clock.now() - begin);
  if (evaluated.figures.is_possible()) {
    PlanFigures figures = figures_of(planning, evaluated.plan);
    figures.planning_seconds = evaluated.figures.planning_seconds;
    figures.was_cut = evaluated.figures.was_cut;
    evaluated.figures = std::move(figures);
  }
  evaluated.plan.strategy = evaluated.figures.strategy = strategy.name;
  evaluated.figures.source = strategy.source;
  evaluated.figures.budget = planning.budget;
  return evaluated;
}

}  // namespace spillway::cli
