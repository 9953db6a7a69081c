#include "given_plan.h"

#include <algorithm>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/log.h"

namespace spillway::runtime {

bool has_same_lifetimes(const std::vector<profile::TapeValue>& a,
                        const std::vector<profile::TapeValue>& b) {
  const auto is_equal = [](const profile::TapeValue& x, const profile::TapeValue& y) {
    return x.pages == y.pages && x.birth == y.birth && x.death == y.death;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_equal);
}

namespace {

constexpr std::uint64_t kStepsToDecide = 6;
constexpr std::uint32_t kSpareShare = 32;  // Of the room, that the plan may take beyond it.

}  // namespace

bool GivenPlan::is_for(const profile::OpSequence& step) const {
  const planner::StepIdentity& wanted = options_.stored->step;
  return step.size() == wanted.operators && step.identity() == wanted.operator_hash;
}

planner::SwapLimits GivenPlan::limits_in(const planner::SwapLimits& limits) const {
  planner::SwapLimits all = limits;
  const std::uint32_t most = limits.budget_pages + std::max(1U, limits.budget_pages / kSpareShare);
  all.budget_pages =
      std::max(limits.budget_pages, std::min(options_.stored->limits().budget_pages, most));
  return all;
}

bool GivenPlan::may_fit(const profile::StepTape& step, bool knows_before,
                        const planner::SwapLimits& limits) const {
  return limits.budget_pages > misfit_pages_ || knows_before > misfit_knew_before_ ||
         !has_same_lifetimes(step.values, misfit_values_);
}

void GivenPlan::note_misfit(const profile::StepTape& step, bool knows_before,
                            const planner::SwapLimits& limits) {
  misfit_values_ = step.values;
  misfit_knew_before_ = knows_before;
  misfit_pages_ = limits.budget_pages;
}

std::optional<planner::StepPlan> GivenPlan::on(const profile::StepTape& tape,
                                               const planner::SwapLimits& limits) {
  const std::string& name = options_.stored_name;
  try {
    const planner::SwapLimits room = limits_in(limits);
    auto plan = planner::fit_plan(*options_.stored, name, tape, limits.page_size, room);
    if (!options_.recomputes && !plan.replays.empty())
      throw PlanError("{}: the plan runs {} again, which --recompute off forbids", name,
                      counted(plan.replays.size(), "operator"));
    if (plan.swaps.estimate.peak_pages > room.budget_pages)
      throw PlanError("{}: the plan takes {}, more than the {} that storages may take here (allow "
                      "more with --budget, or make a plan for this one)",
                      name, limits.page_size * plan.swaps.estimate.peak_pages,
                      limits.page_size * limits.budget_pages);
    fits_ = true;
    return plan;
  } catch (const PlanError& error) {
    was_tried_ = true;
    misfit_ = error.what();
    log_debug("the plan does not fit here: {}", misfit_);
    return std::nullopt;
  }
}

void GivenPlan::note_step(const profile::OpSequence& usual) {
  if (fits_) return;
  ++steps_;
  if (!was_tried_ && (misfit_.empty() || steps_ == kStepsToDecide)) {
    misfit_ =
        planner::text_of_other_step(*options_.stored, options_.stored_name, usual.size(),
                                    [&](profile::OpIndex op) { return names_.kind_of(usual[op]); });
  }
  if (steps_ < kStepsToDecide || is_told_) return;
  is_told_ = true;
  log_warning("{}; none of {} was the plan's: the run goes on with plans of its own (record "
              "the step with spillway profile and plan it anew with spillway plan)",
              misfit_, counted(steps_, "step"));
}

}  // namespace spillway::runtime
