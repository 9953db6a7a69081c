#include "spillway/planner/plan_file.h"

#include <algorithm>
#include <limits>

#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/profile/op_sequence.h"

namespace spillway::planner {

using profile::StepTape;

namespace {

std::string text_of(const profile::OpKind& kind) {
  constexpr std::size_t kMostLettersShown = 160;
  return shown_text(message("{}({})", kind.name, kind.arguments), kMostLettersShown);
}

}  // namespace

StepIdentity identity_of(const StepTape& tape) {
  StepIdentity identity;
  identity.operators = tape.ops.size();
  identity.values = tape.values.size();
  // Times are left out: a plan made on one machine is for the same program on another.
  identity.operator_hash = profile::OpSequence(tape.ops).identity();
  for (const profile::TapeValue& value : tape.values)
    for (const std::uint32_t part : {value.pages, value.birth, value.death, value.becomes})
      identity.value_hash = mix(identity.value_hash, part);
  return identity;
}

SwapLimits PlanFile::limits() const {
  SwapLimits limits;
  const std::uint64_t pages = (budget - small_bytes) / page_size;
  limits.budget_pages = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(pages, std::numeric_limits<std::uint32_t>::max()));
  limits.page_size = page_size;
  limits.rates = rates;
  limits.far = far;
  return limits;
}

PlanFile describe_plan(const StepPlan& plan, const StepBound& bound, const StepTape& tape,
                       const SwapLimits& limits, Bytes budget, Bytes small_bytes) {
  PlanFile file;
  file.strategy = plan.strategy;
  file.step = identity_of(tape);
  file.page_size = limits.page_size;
  file.budget = budget;
  file.small_bytes = small_bytes;
  file.rates = limits.rates;
  file.far = limits.far;
  file.replays = plan.replays;
  file.swaps = choices_of(plan.steps.tape, plan.swaps);
  const StepEstimate& estimate = plan.swaps.estimate;
  file.figures = {estimate.step_seconds, bound.step_seconds,
                  estimate.peak_pages * limits.page_size + small_bytes};
  return file;
}

PlanFile describe_plan(const StepPlan& plan, const StepBound& bound,
                       const profile::StepProfile& profile, const SwapLimits& limits,
                       Bytes budget) {
  PlanFile file = describe_plan(plan, bound, profile.tape, limits, budget, profile.small_bytes);
  file.program = profile.origin.program;
  file.device = profile.origin.device;
  for (const std::uint32_t kind : profile.kind_of_op) file.ops.push_back(profile.kinds[kind]);
  return file;
}

std::string text_of_other_step(const PlanFile& file, const std::string& name, std::uint64_t ops,
                               const OpKindOf& kind_of) {
  std::string text = message("{}: the plan is for another program or other shapes, a step of {}{} "
                             "operators and not these {}",
                             name, file.program.empty() ? "" : shown_text(file.program) + " with ",
                             file.step.operators, ops);
  // Names help most where two programs are nearly alike: the first operator that differs is the one
  // to look at.
  const std::size_t both = kind_of ? std::min<std::size_t>(ops, file.ops.size()) : 0;
  for (std::size_t op = 0; op < both; ++op) {
    const profile::OpKind here = kind_of(static_cast<OpIndex>(op));
    const profile::OpKind& there = file.ops[op];
    if (here == there) continue;
    return text + message("; operator {} is {} in the plan and {} here", op, text_of(there),
                          text_of(here));
  }
  if (both == 0) return text;
  return text + (ops == file.step.operators
                     ? ", of the same names and arguments but with other tensors"
                     : message("; the first {} are the same", both));
}

StepPlan fit_plan(const PlanFile& file, const std::string& name, const StepTape& tape,
                  Bytes page_size, const SwapLimits& limits, const OpKindOf& kind_of) {
  // First, because in other pages all sizes differ: the message would be about other tensors.
  if (page_size != file.page_size)
    throw PlanError(
        "{}: the plan counts pages of {}, the step has pages of {} (make it again with: "
        "spillway plan)",
        name, file.page_size, page_size);
  const StepIdentity step = identity_of(tape);
  if (step.operators != file.step.operators || step.operator_hash != file.step.operator_hash)
    throw PlanError("{} (record this step with spillway profile, and make the plan again with: "
                    "spillway plan)",
                    text_of_other_step(file, name, step.operators, kind_of));
  // Equal operators whose storages live differently: the plan names values by their number, so it
  // would move others than it means.
  if (step != file.step)
    throw PlanError("{}: the plan is for the same operators on other tensors: {} values and "
                    "not {}, or of other sizes (make it again with: spillway plan)",
                    name, file.step.values, step.values);
  try {
    StepPlan plan;
    plan.strategy = file.strategy;
    plan.replays = file.replays;
    plan.steps = rewrite_tape(tape, plan.replays);
    plan.replay_seconds = replay_seconds(tape, plan.replays);
    // Evaluated anew with the rates of today, so figures in the file are never passed on as
    // predictions.
    plan.swaps = restore_swaps(plan.steps.tape, file.swaps, limits);
    if (!plan.swaps.is_feasible || !plan.swaps.estimate.is_complete)
      throw PlanError("it cannot be carried out within {}", file.budget);
    return plan;
  } catch (const PlanError& error) {
    throw PlanError("{}: {} (make it again with: spillway plan)", name, error.what());
  }
}

}  // namespace spillway::planner
