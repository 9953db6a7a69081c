#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "eviction_choice.h"
#include "spillway/base/error.h"
#include "spillway/planner/swap_plan.h"
#include "touch_intervals.h"
#include "transfer_schedule.h"

namespace spillway::planner {
namespace {

// A plan must be better by this much to be preferred to one that was tried before it: fuller ones
// leave less room for what the model does not know. Refining goes in smaller steps.
constexpr double kWorthwhile = 0.999;
constexpr double kWorthRefining = 0.9998;
// Shares of the budget to fill that are tried beside the wanted one.
constexpr std::array<double, 4> kOtherShares{1.0, 0.96, 0.92, 0.8};
constexpr std::array<double, 3> kOtherLeads{0.0, 1.0, 8.0};
constexpr std::array<std::uint32_t, 2> kOtherReserveOps{1, 3};
// As many of the shares are gone on with.
constexpr std::size_t kRefinedStarts = 3;
// Plans that wait for so small a share of the step are good enough.
constexpr double kSmallStall = 0.005;

void check(const SwapLimits& limits) {
  if (limits.budget_pages == 0) throw ConfigError("budget of a plan is 0 pages");
  if (limits.page_size.count() == 0) throw ConfigError("page size of a plan is 0");
  const auto is_positive = [](double number) { return number > 0.0 && number < 1e30; };
  if (!is_positive(limits.rates.write_bytes_per_second) ||
      !is_positive(limits.rates.read_bytes_per_second))
    throw ConfigError("transfer rates of a plan must be positive: write {}, read {} bytes/s",
                      limits.rates.write_bytes_per_second, limits.rates.read_bytes_per_second);
  if (!(limits.target_share > 0.0 && limits.target_share <= 1.0))
    throw ConfigError("target share must lie in (0, 1]: {}", limits.target_share);
  if (!(limits.rates.duplex_share > 0.0 && limits.rates.duplex_share <= 1.0))
    throw ConfigError("duplex share must lie in (0, 1]: {}", limits.rates.duplex_share);
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
    cost_ = {page / limits.rates.write_bytes_per_second, page / limits.rates.read_bytes_per_second};
    base_.use_distance = touches_.use_distance;
    base_.birth_distance = touches_.birth_distance;
    base_.births = births_per_op(tape);
    base_.bound = bound_step(tape, limits);
    base_.smallest_budget_pages = smallest_budget(tape);
    base_.is_feasible = base_.smallest_budget_pages <= limits.budget_pages;
  }

  SwapPlan search() {
    const bool is_needed = live_peak(tape_) > limits_.budget_pages;
    if (!is_needed) {
      const std::vector<std::uint32_t> nothing(touches_.intervals.size(), 0);
      try_candidate({nothing, LevelTree(gross_)}, TransferStyle{}, 1.0);
      return std::move(best_->plan);
    }
    std::vector<Candidate> starts{best_with(limits_.target_share)};
    for (const double share : kOtherShares) starts.push_back(best_with(share));
    std::stable_sort(starts.begin(), starts.end(), [](const Candidate& a, const Candidate& b) {
      return is_better(a.plan.estimate, b.plan.estimate, 1.0);
    });
    SwapPlan best;
    for (std::size_t i = 0; i < kRefinedStarts; ++i) {
      best_ = std::move(starts[i]);
      tries_left_ = limits_.refinement_ops / kRefinedStarts / tape_.ops.size();
      try_styles();
      while (refine() && try_styles()) {
      }
      if (i == 0 || is_better(best_->plan.estimate, best.estimate, kWorthwhile))
        best = std::move(best_->plan);
    }
    return best;
  }

 private:
  struct Candidate {
    EvictionChoice choice;
    TransferStyle style;
    SwapPlan plan;
  };

  Candidate best_with(double share) {
    const auto target =
        static_cast<std::uint32_t>(share * static_cast<double>(limits_.budget_pages));
    best_.reset();
    for (const ChoiceRule rule :
         {ChoiceRule::kFarthestUse, ChoiceRule::kLeastCost, ChoiceRule::kBestValue}) {
      const EvictionChoice choice = choose_evictions(touches_, gross_, target, rule, cost_);
      for (const WriteOutMoment moment : {WriteOutMoment::kEarly, WriteOutMoment::kLate})
        try_candidate(choice, {.write_outs = moment}, share);
    }
    return std::move(*best_);
  }

  bool try_candidate(EvictionChoice choice, TransferStyle style, double share,
                     double worthwhile = kWorthwhile) {
    Candidate candidate{std::move(choice), style, base_};
    SwapPlan& plan = candidate.plan;
    plan.filled_share = share;
    plan.reserve_pages = reserves(style.reserve_ops);
    schedule_transfers(tape_, touches_, candidate.choice, begins_, limits_, style, plan);
    plan.estimate = estimate_step(tape_, plan, limits_);
    if (best_ && !is_better(plan.estimate, best_->plan.estimate, worthwhile)) return false;
    best_ = std::move(candidate);
    return true;
  }

  /// Few different ones serve thousands of candidates.
  const std::vector<std::uint32_t>& reserves(std::uint32_t ahead) {
    const auto [known, is_new] = reserves_.try_emplace(ahead);
    if (is_new) known->second = fetch_reserves(tape_, ahead);
    return known->second;
  }

  bool is_good_enough() const {
    const StepEstimate& estimate = best_->plan.estimate;
    return estimate.is_complete && estimate.stall_seconds < kSmallStall * estimate.step_seconds;
  }

  /// One property after the other, for the best choice of pages.
  bool try_styles() {
    bool has_improved = false;
    const auto vary = [&](auto change) {
      TransferStyle style = best_->style;
      change(style);
      has_improved |= try_candidate(best_->choice, style, best_->plan.filled_share);
    };
    for (const double lead : kOtherLeads)
      vary([&](TransferStyle& style) { style.lead_durations = lead; });
    for (const std::uint32_t ops : kOtherReserveOps)
      vary([&](TransferStyle& style) { style.reserve_ops = ops; });
    return has_improved;
  }

  /// Interval by interval: keeps what the room allows, or takes more out, when that is faster.
  bool refine() {
    bool has_improved = false;
    for (std::uint32_t i = 0; i < touches_.intervals.size(); ++i) {
      for (const bool keeps : {true, false}) {
        if (tries_left_ == 0 || is_good_enough()) return false;
        const std::int64_t change = keeps ? keepable(i) : takable(i);
        if (change == 0) continue;
        --tries_left_;
        has_improved |= try_change(i, change);
      }
    }
    return has_improved;
  }

  std::int64_t keepable(std::uint32_t index) const {
    const Interval& interval = touches_.intervals[index];
    const EvictionChoice& choice = best_->choice;
    if (choice.pages[index] == 0) return 0;
    const std::int64_t room = std::int64_t{limits_.budget_pages} -
                              choice.levels.max(interval.begin + 1, interval.covered_ops);
    const std::int64_t copies = interval.covered_ops / tape_.ops.size() + 1;
    return std::clamp<std::int64_t>(room / copies, 0, choice.pages[index]);
  }

  std::int64_t takable(std::uint32_t index) const {
    return std::int64_t{best_->choice.pages[index]} - touches_.intervals[index].pages;
  }

  /// A positive change keeps so many pages more.
  bool try_change(std::uint32_t index, std::int64_t change) {
    const Interval& interval = touches_.intervals[index];
    EvictionChoice choice = best_->choice;
    choice.pages[index] = static_cast<std::uint32_t>(choice.pages[index] - change);
    choice.levels.add(interval.begin + 1, interval.covered_ops, change);
    return try_candidate(std::move(choice), best_->style, best_->plan.filled_share, kWorthRefining);
  }

  static bool is_better(const StepEstimate& now, const StepEstimate& before, double worthwhile) {
    if (now.is_complete != before.is_complete) return now.is_complete;
    return now.step_seconds < before.step_seconds * worthwhile;
  }

  const StepTape& tape_;
  const SwapLimits& limits_;
  const TouchIntervals touches_;
  const std::vector<std::uint32_t> gross_;
  const std::vector<double> begins_;
  PageCost cost_;
  SwapPlan base_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> reserves_;  ///< By operators ahead.
  std::optional<Candidate> best_;
  std::size_t tries_left_ = 0;
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
