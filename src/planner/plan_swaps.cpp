#include <algorithm>
#include <array>
#include <optional>

#include "eviction_choice.h"
#include "spillway/base/error.h"
#include "spillway/planner/swap_plan.h"
#include "touch_intervals.h"
#include "transfer_schedule.h"

namespace spillway::planner {
namespace {

// A plan must be better by this much to be preferred to one that was tried before it.
constexpr double kWorthwhile = 0.998;
// Shares of the budget to fill that are tried beside the wanted one.
constexpr double kFullest = 0.98;
constexpr std::array<double, 1> kFullerShares{0.94};
constexpr std::array<double, 1> kEmptierShares{0.78};

void check(const SwapLimits& limits) {
  if (limits.budget_pages == 0) throw ConfigError("budget of a plan is 0 pages");
  if (limits.page_size.count() == 0) throw ConfigError("page size of a plan is 0");
  const auto is_positive = [](double number) { return number > 0.0 && number < 1e30; };
  if (!is_positive(limits.write_bytes_per_second) || !is_positive(limits.read_bytes_per_second))
    throw ConfigError("transfer rates of a plan must be positive: write {}, read {} bytes/s",
                      limits.write_bytes_per_second, limits.read_bytes_per_second);
  if (!(limits.target_share > 0.0 && limits.target_share <= 1.0))
    throw ConfigError("target share must lie in (0, 1]: {}", limits.target_share);
  if (!(limits.duplex_share > 0.0 && limits.duplex_share <= 1.0))
    throw ConfigError("duplex share must lie in (0, 1]: {}", limits.duplex_share);
}

/// Builds candidates from what they share and keeps the best.
class PlanSearch {
 public:
  PlanSearch(const StepTape& tape, const SwapLimits& limits)
      : tape_(tape),
        limits_(limits),
        touches_(find_intervals(tape)),
        gross_(gross_levels(tape)),
        begins_(compute_begins(tape)) {
    const auto page = static_cast<double>(limits.page_size.count());
    cost_ = {page / limits.write_bytes_per_second, page / limits.read_bytes_per_second};
    base_.use_distance = touches_.use_distance;
    base_.birth_distance = touches_.birth_distance;
    base_.reserve_pages = fetch_reserves(tape);
    base_.births = births_per_op(tape);
    base_.bound = bound_step(tape, limits);
    base_.smallest_budget_pages = smallest_budget(tape);
    base_.is_feasible = base_.smallest_budget_pages <= limits.budget_pages;
  }

  SwapPlan search() {
    const bool is_needed = live_peak(tape_) > limits_.budget_pages;
    try_candidate(is_needed ? limits_.target_share : 1.0, ChoiceRule::kFarthestUse,
                  WriteOutMoment::kEarly);
    if (!is_needed) return std::move(*best_);
    try_candidate(limits_.target_share, ChoiceRule::kLeastCost, WriteOutMoment::kEarly);
    // Fuller first, since bytes are what costs everywhere; emptier only when that does not help.
    try_candidate(kFullest, best_rule_, WriteOutMoment::kEarly);
    const bool is_full = best_->filled_share == kFullest;
    for (const double share : is_full ? kFullerShares : kEmptierShares)
      try_candidate(share, best_rule_, WriteOutMoment::kEarly);
    try_candidate(best_->filled_share, best_rule_, WriteOutMoment::kLate);
    return std::move(*best_);
  }

 private:
  void try_candidate(double share, ChoiceRule rule, WriteOutMoment moment) {
    SwapPlan plan = base_;
    plan.filled_share = share;
    plan.write_out_moment = moment;
    const auto target =
        static_cast<std::uint32_t>(share * static_cast<double>(limits_.budget_pages));
    schedule_transfers(tape_, touches_, choose_evictions(touches_, gross_, target, rule, cost_),
                       begins_, limits_, plan);
    plan.estimate = estimate_step(tape_, plan, limits_);
    if (best_ && !is_better(plan.estimate, best_->estimate)) return;
    best_ = std::move(plan);
    best_rule_ = rule;
  }

  static bool is_better(const StepEstimate& now, const StepEstimate& before) {
    if (now.is_complete != before.is_complete) return now.is_complete;
    return now.step_seconds < before.step_seconds * kWorthwhile;
  }

  const StepTape& tape_;
  const SwapLimits& limits_;
  const TouchIntervals touches_;
  const std::vector<std::uint32_t> gross_;
  const std::vector<double> begins_;
  PageCost cost_;
  SwapPlan base_;
  std::optional<SwapPlan> best_;
  ChoiceRule best_rule_ = ChoiceRule::kFarthestUse;
};

}  // namespace

SwapPlan plan_swaps(const StepTape& tape, const SwapLimits& limits) {
  check(limits);
  profile::check(tape);
  if (tape.ops.empty()) {
    SwapPlan plan;
    plan.write_outs.first = plan.fetches.first = plan.births.first = {0};
    plan.is_feasible = true;
    return plan;
  }
  return PlanSearch(tape, limits).search();
}

}  // namespace spillway::planner
