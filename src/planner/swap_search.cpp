#include "swap_search.h"

#include <algorithm>
#include <array>

#include "search_limits.h"
#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

const std::array<ChoiceRule, 3> kRules{ChoiceRule::kFarthestUse, ChoiceRule::kLeastCost,
                                       ChoiceRule::kBestValue};

void check_rates(const TransferRates& rates) {
  const std::string problem = profile::problem_with(rates);
  if (!problem.empty()) throw ConfigError("no plan can be made at these rates: {}", problem);
}

}  // namespace

void check(const SwapLimits& limits) {
  if (limits.budget_pages == 0) throw ConfigError("budget of a plan is 0 pages");
  if (limits.page_size.count() == 0) throw ConfigError("page size of a plan is 0");
  if (!(limits.target_share > 0.0 && limits.target_share <= 1.0))
    throw ConfigError("target share must lie in (0, 1]: {}", limits.target_share);
  check_rates(limits.rates);
  if (limits.far) check_rates(limits.far->rates);
}

// From structure to measure: rules choose pages by levels and costs; styles set the moments of all
// swaps alike, with a simulation per style; refining changes single intervals, with one for each.
// So most of the simulations go to what is good already.
SwapSearch::SwapSearch(const StepTape& tape, const SwapLimits& limits)
    : tape_(tape),
      limits_(limits),
      touches_(find_intervals(tape)),
      live_pages_(live_pages(tape)),
      begins_(compute_begins(tape)),
      cost_(page_cost(limits, excess_over(limits.budget_pages, live_pages_))) {
  // All candidates share these; the rest of a plan is made anew for each of them.
  base_.use_distance = touches_.use_distance;
  base_.birth_distance = touches_.birth_distance;
  base_.births = births_per_op(tape);
  base_.smallest_budget_pages = smallest_budget(tape);
  base_.is_feasible = base_.smallest_budget_pages <= limits.budget_pages;
}

bool SwapSearch::is_needed() const {
  return *std::max_element(live_pages_.begin(), live_pages_.end()) > limits_.budget_pages;
}

/// Whether the near tier holds something, and not all that could ever leave.
bool SwapSearch::may_choose_tiers() const {
  // Where all goes far, or all fits near, there is no choice between the tiers.
  if (!limits_.far || limits_.far->near_pages == 0) return false;
  std::uint64_t pages = 0;
  for (const auto& value : tape_.values) pages += value.pages;
  return limits_.far->near_pages < pages;
}

EvictionChoice SwapSearch::choose(double share, ChoiceRule rule) const {
  // A chooser would look at all intervals to find that none has to leave.
  if (!is_needed())
    return {std::vector<std::uint32_t>(touches_.intervals.size(), 0), LevelTree(live_pages_)};
  const auto target = static_cast<std::uint32_t>(share * static_cast<double>(limits_.budget_pages));
  return choose_evictions(touches_, live_pages_, target, rule, cost_);
}

SwapPlan SwapSearch::plan(const SwapStyle& style) {
  best_.reset();
  try_candidate(choose(style.share, style.rule), style, 1.0);
  return std::move(best_->plan);
}

StyledSwaps SwapSearch::best(std::size_t refinement_ops, const StopCheck& should_stop) {
  should_stop_ = should_stop;
  if (!is_needed()) {
    SwapStyle style;
    style.share = 1.0;
    return {style, plan(style)};
  }
  std::vector<Candidate> starts{best_with(limits_.target_share)};
  // The event model meets moments that the levels do not show, as chunks in flight and reserves; a
  // plan that fills less of the budget has room for them, and one that fills more moves less. Which
  // of them wins, only trying tells.
  for (const double share : kOtherShares) {
    if (should_stop_ && should_stop_()) break;
    starts.push_back(best_with(share));
  }
  std::stable_sort(starts.begin(), starts.end(), [](const Candidate& a, const Candidate& b) {
    return is_better(a.plan.estimate, b.plan.estimate);
  });
  StyledSwaps best;
  for (std::size_t i = 0; i < std::min(kRefinedStarts, starts.size()); ++i) {
    best_ = std::move(starts[i]);
    // A try simulates the step once, so a limit of operators bounds the time for steps of any
    // length.
    tries_left_ = refinement_ops / kRefinedStarts / tape_.ops.size();
    try_styles();
    // Other pages may suit other moments, and other moments other pages: on, until neither helps.
    while (refine() && try_styles()) {
    }
    if (i == 0 || is_better(best_->plan.estimate, best.plan.estimate, kWorthwhileSwaps))
      best = {best_->style, std::move(best_->plan)};
  }
  return best;
}

SwapSearch::Candidate SwapSearch::best_with(double share) {
  best_.reset();
  for (const ChoiceRule rule : kRules) {
    const EvictionChoice choice = choose(share, rule);
    for (const WriteOutMoment moment : {WriteOutMoment::kEarly, WriteOutMoment::kLate}) {
      if (is_stopped()) return std::move(*best_);
      try_candidate(choice, {share, rule, {.write_outs = moment}}, kWorthwhileSwaps);
    }
  }
  return std::move(*best_);
}

bool SwapSearch::try_candidate(EvictionChoice choice, SwapStyle style, double worthwhile) {
  Candidate candidate{std::move(choice), style, base_};
  SwapPlan& plan = candidate.plan;
  plan.filled_share = style.share;
  plan.reserve_pages = reserves(style.transfers.reserve_ops);
  schedule_transfers(tape_, touches_, candidate.choice, begins_, limits_, style.transfers, plan);
  plan.estimate = estimate_step(tape_, plan, limits_);
  if (best_ && !is_better(plan.estimate, best_->plan.estimate, worthwhile)) return false;
  best_ = std::move(candidate);
  return true;
}

/// Few different ones serve thousands of candidates.
const std::vector<std::uint32_t>& SwapSearch::reserves(std::uint32_t ahead) {
  const auto [known, is_new] = reserves_.try_emplace(ahead);
  if (is_new) known->second = fetch_reserves(tape_, ahead);
  return known->second;
}

bool SwapSearch::is_good_enough() const {
  const StepEstimate& estimate = best_->plan.estimate;
  return estimate.is_complete && estimate.stall_seconds < kSmallStall * estimate.step_seconds;
}

/// One property after the other, for the best choice of pages.
bool SwapSearch::try_styles() {
  bool has_improved = false;
  const auto vary = [&](auto change) {
    if (is_stopped()) return;
    SwapStyle style = best_->style;
    change(style.transfers);
    has_improved |= try_candidate(best_->choice, style, kWorthwhileSwaps);
  };
  for (const double lead : kOtherLeads)
    vary([&](TransferStyle& style) { style.lead_durations = lead; });
  for (const std::uint32_t ops : kOtherReserveOps)
    vary([&](TransferStyle& style) { style.reserve_ops = ops; });
  if (!may_choose_tiers()) return has_improved;
  for (const TierRule rule : kTierRules) vary([&](TransferStyle& style) { style.tiers = rule; });
  return has_improved;
}

/// Interval by interval: keeps what the room allows, or takes more out, when that is faster.
bool SwapSearch::refine() {
  bool has_improved = false;
  for (std::uint32_t i = 0; i < touches_.intervals.size(); ++i) {
    // Keeping first, since it moves less; taking more out helps where the budget is met only by
    // waiting.
    for (const bool keeps : {true, false}) {
      if (tries_left_ == 0 || is_good_enough() || is_stopped()) return false;
      const std::int64_t change = keeps ? keepable(i) : takable(i);
      if (change == 0) continue;
      --tries_left_;
      has_improved |= try_change(i, change);
    }
  }
  if (may_choose_tiers()) has_improved |= try_tiers();
  return has_improved;
}

/// Copy by copy: to the other tier, when that is faster.
bool SwapSearch::try_tiers() {
  bool has_improved = false;
  if (groups_.empty()) groups_ = copy_groups(tape_, touches_);
  for (std::uint32_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i] != i) continue;
    for (const TierWish wish : {TierWish::kNear, TierWish::kFar}) {
      if (tries_left_ == 0 || is_good_enough() || is_stopped()) return has_improved;
      if (best_->choice.pages[i] == 0) continue;
      EvictionChoice choice = best_->choice;
      choice.wishes.resize(groups_.size(), TierWish::kNone);
      if (choice.wishes[i] == wish) continue;
      choice.wishes[i] = wish;
      --tries_left_;
      has_improved |= try_candidate(std::move(choice), best_->style, kWorthRefining);
    }
  }
  return has_improved;
}

std::int64_t SwapSearch::keepable(std::uint32_t index) const {
  const Interval& interval = touches_.intervals[index];
  const EvictionChoice& choice = best_->choice;
  if (choice.pages[index] == 0) return 0;
  const std::int64_t room = std::int64_t{limits_.budget_pages} -
                            choice.levels.max(interval.begin + 1, interval.covered_ops);
  // An interval longer than the step takes its room once per copy that is alive.
  const std::int64_t copies = interval.covered_ops / tape_.ops.size() + 1;
  return std::clamp<std::int64_t>(room / copies, 0, choice.pages[index]);
}

std::int64_t SwapSearch::takable(std::uint32_t index) const {
  return std::int64_t{best_->choice.pages[index]} - touches_.intervals[index].pages;
}

/// A positive change keeps so many pages more.
bool SwapSearch::try_change(std::uint32_t index, std::int64_t change) {
  const Interval& interval = touches_.intervals[index];
  EvictionChoice choice = best_->choice;
  choice.pages[index] = static_cast<std::uint32_t>(choice.pages[index] - change);
  choice.levels.add(interval.begin + 1, interval.covered_ops, change);
  return try_candidate(std::move(choice), best_->style, kWorthRefining);
}

}  // namespace spillway::planner
