// Lists of replays that are no sets of drops: where they come from, and what they can do without.

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "online_eviction.h"
#include "search_limits.h"
#include "spillway/base/error.h"
#include "step_search.h"

namespace spillway::planner {
namespace {

/// None where an operator would not find what it needs.
std::optional<ReplayList> planned(const StepTape& tape, const SwapLimits& limits,
                                  std::vector<Replay> replays, const SwapStyle& style) {
  ReplayList list;
  try {
    list.steps = rewrite_tape(tape, replays);
  } catch (const PlanError&) {
    return std::nullopt;
  }
  list.replays = std::move(replays);
  list.swaps = {style, SwapSearch(list.steps.tape, limits).plan(style)};
  return list;
}

/// What an on-line eviction runs again that has so many pages, and swaps of this style for what
/// does not fit into the budget then.
ReplayList evict_on_line(const StepTape& tape, const Recomputation& all, const SwapLimits& limits,
                         std::uint32_t pages, const SwapStyle& style,
                         const StopCheck& should_stop) {
  // Where layers read all those before them, freed values serve several replays, and there is more
  // room here than the budget has: they may stay.
  OnlineEviction eviction(tape, all, pages, FreedValues::kStay, should_stop);
  return *planned(tape, limits, eviction.run(), style);
}

/// Takes replays out one by one, as long as that makes the plan better: what one of them brought
/// back stays from its use before on, or is swapped. Before each try it says how many operators
/// that simulates, and ends when the answer is no.
ReplayList without_needless(const StepTape& tape, const SwapLimits& limits, ReplayList list,
                            const std::function<bool(std::size_t ops)>& may_try) {
  for (bool has_improved = true; has_improved;) {
    has_improved = false;
    // What is computed from others comes before them, so these are needless when their turn comes.
    for (std::size_t i = list.replays.size(); i-- > 0;) {
      if (!may_try(list.steps.op_of.size())) return list;
      std::vector<Replay> less = list.replays;
      less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
      std::optional<ReplayList> next = planned(tape, limits, std::move(less), list.swaps.style);
      if (!next || !is_better(next->estimate(), list.estimate(), kWorthwhileReplay)) continue;
      list = std::move(*next);
      has_improved = true;
    }
  }
  return list;
}

}  // namespace

/// What an on-line eviction with more room than there is recomputes, and swaps for the rest:
/// where layers read all those before them, prices of single drops do not find such plans.
void StepSearch::find_evictions() {
  if (space_.empty() || tape_.ops.size() > kMostOpsEvicted) return;
  const Recomputation all(tape_);
  for (const double share : kEvictionShares) {
    if (is_over()) break;
    // With more room than there is it recomputes less, and swaps have to do the rest; which mixture
    // is best depends on the link.
    const auto pages = static_cast<std::uint32_t>(share * limits_.budget_pages);
    ReplayList list = evict_on_line(tape_, all, limits_, pages, best_->swaps.style,
                                    [this] { return is_stopped(); });
    spend(kPublishedTries * list.steps.op_of.size());
    lists_.push_back(std::move(list));
  }
  std::stable_sort(lists_.begin(), lists_.end(), [](const ReplayList& a, const ReplayList& b) {
    return is_better(a.estimate(), b.estimate());
  });
  if (lists_.size() > kLists) lists_.resize(kLists);
  for (ReplayList& list : lists_) hand_out(plan_of(list));
}

StepPlan StepSearch::plan_of(const ReplayList& list) const {
  StepPlan plan;
  plan.strategy = "spillway";
  plan.replays = list.replays;
  plan.replay_seconds = replay_seconds(tape_, list.replays);
  plan.steps = list.steps;
  plan.swaps = list.swaps.plan;
  return plan;
}

void StepSearch::prune_list(ReplayList list) {
  auto left = static_cast<std::size_t>(kPruneShare * static_cast<double>(ops_left_));
  const auto may_try = [&](std::size_t ops) {
    if (left < ops || is_over()) return false;
    left -= ops;
    spend(ops);
    return true;
  };
  list = without_needless(tape_, limits_, std::move(list), may_try);
  hand_out(plan_of(list));
  if (!is_over()) restyle(list);
}

/// Gives it the swaps that suit it: it was found with those of another plan.
void StepSearch::restyle(ReplayList& list) {
  list.swaps = SwapSearch(list.steps.tape, limits_).best(0, [this] { return is_stopped(); });
  spend(kSwapTries * list.steps.op_of.size());
  hand_out(plan_of(list));
}

void StepSearch::prune_lists() {
  for (ReplayList& list : lists_) {
    if (is_over()) return;
    if (!is_better(list.estimate(), best_estimate(), kFarBehind)) continue;
    restyle(list);
    prune_list(std::move(list));
  }
  lists_.clear();
}

/// Drops come and go with all that they ask for; single replays may do without.
void StepSearch::prune_best() {
  const bool is_known = std::equal(
      pruned_.begin(), pruned_.end(), best_->replays.begin(), best_->replays.end(),
      [](const Replay& a, const Replay& b) { return a.before == b.before && a.op == b.op; });
  if (is_known || best_->replays.empty() || is_over()) return;
  // A plan that was pruned once has nothing more to lose, and this is called again and again.
  pruned_ = best_->replays;
  prune_list(*best_);
}

}  // namespace spillway::planner
