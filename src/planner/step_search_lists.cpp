// Lists of replays that are no sets of drops: where they come from, and what they can do without.

#include <algorithm>
#include <array>
#include <utility>

#include "step_search.h"

namespace spillway::planner {
namespace {

// Room of on-line evictions, in budgets: what goes beyond is swapped.
constexpr std::array<double, 7> kEvictionShares{1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0};
// They look at all that is resident again and again, so only for steps of so many operators.
constexpr std::size_t kMostOpsEvicted = 5000;
// As many of them are gone on with, and lose what they run needlessly for at most this share of the
// effort that is left.
constexpr std::size_t kLists = 3;
constexpr double kPruneShare = 0.1;
// Those that take so much longer than the best would not come near it by that.
constexpr double kFarBehind = 1.1;

}  // namespace

/// What an on-line eviction with more room than there is recomputes, and swaps for the rest:
/// where layers read all those before them, prices of single drops do not find such plans.
void StepSearch::find_evictions() {
  if (space_.empty() || tape_.ops.size() > kMostOpsEvicted) return;
  const Recomputation all(tape_);
  for (const double share : kEvictionShares) {
    if (is_over()) break;
    const auto pages = static_cast<std::uint32_t>(share * limits_.budget_pages);
    ReplayList list = evict_on_line(tape_, all, limits_, pages, best_->swaps.style,
                                    [this] { return is_stopped(); });
    spend(kPublishedTries * list.steps.op_of.size());
    lists_.push_back(std::move(list));
  }
  std::stable_sort(lists_.begin(), lists_.end(), [](const ReplayList& a, const ReplayList& b) {
    return is_better(a.estimate(), b.estimate(), 1.0);
  });
  if (lists_.size() > kLists) lists_.resize(kLists);
  for (ReplayList& list : lists_) hand_out(plan_of(list));
}

StepPlan StepSearch::plan_of(const ReplayList& list) const {
  StepPlan plan;
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
  if (is_over()) return;
  list.swaps = SwapSearch(list.steps.tape, limits_).best(0, [this] { return is_stopped(); });
  spend(kSwapTries * list.steps.op_of.size());
  hand_out(plan_of(list));
}

void StepSearch::prune_lists() {
  for (ReplayList& list : lists_) {
    if (is_over()) return;
    if (!is_better(list.estimate(), best_estimate(), kFarBehind)) continue;
    list.swaps = SwapSearch(list.steps.tape, limits_).best(0, [this] { return is_stopped(); });
    spend(kSwapTries * list.steps.op_of.size());
    hand_out(plan_of(list));
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
  pruned_ = best_->replays;
  prune_list({best_->replays, best_->steps, best_->swaps});
}

}  // namespace spillway::planner
