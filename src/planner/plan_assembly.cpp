#include "plan_assembly.h"

#include <algorithm>
#include <unordered_map>

namespace spillway::planner {
namespace {

// Operators whose allocations fetches leave room for, as `SwapSearch` begins with.
constexpr std::uint32_t kReserveOps = 6;

}  // namespace

PlanAssembly::PlanAssembly(const StepTape& tape, std::vector<Replay> replays,
                           const SwapLimits& limits)
    : tape_(tape),
      limits_(limits),
      replays_(std::move(replays)),
      steps_(rewrite_tape(tape, replays_)),
      touches_(find_intervals(steps_.tape)),
      live_pages_(live_pages(steps_.tape)) {
  OpIndex last = 0;
  for (OpIndex at = 0; at < steps_.op_of.size(); ++at) {
    // Gaps are told in operators of the original tape, where a replay has no place: it stands
    // behind the last original before it.
    if (!steps_.is_replay[at]) last = steps_.op_of[at];
    anchor_.push_back(last);
  }
}

std::vector<std::uint32_t> PlanAssembly::pages_for(std::span<const ChosenGap> gaps) const {
  std::unordered_map<ValueIndex, std::vector<ChosenGap>> of_value;
  for (const ChosenGap& gap : gaps) of_value[gap.value].push_back(gap);
  std::vector<std::uint32_t> pages(touches_.intervals.size(), 0);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const Interval& interval = touches_.intervals[i];
    const auto chosen = of_value.find(steps_.value_of[interval.value]);
    if (chosen == of_value.end()) continue;
    const OpIndex begin = anchor_[interval.begin];
    for (const ChosenGap& gap : chosen->second) {
      // A replay in the gap uses the value and splits it: both parts leave then.
      if (begin < gap.begin || begin > gap.begin + gap.covered_ops) continue;
      pages[i] = std::min(gap.pages, interval.pages);
    }
  }
  return pages;
}

LevelTree PlanAssembly::levels_without(const std::vector<std::uint32_t>& pages) const {
  LevelTree levels(live_pages_);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const Interval& interval = touches_.intervals[i];
    if (pages[i] > 0) levels.add(interval.begin + 1, interval.covered_ops, -std::int64_t{pages[i]});
  }
  return levels;
}

SwapPlan PlanAssembly::base() const {
  SwapPlan plan;
  plan.use_distance = touches_.use_distance;
  plan.birth_distance = touches_.birth_distance;
  plan.births = births_per_op(steps_.tape);
  plan.reserve_pages = fetch_reserves(steps_.tape, kReserveOps);
  plan.smallest_budget_pages = smallest_budget(steps_.tape);
  plan.is_feasible = plan.smallest_budget_pages <= limits_.budget_pages;
  plan.filled_share = 1.0;
  return plan;
}

SwapPlan PlanAssembly::swapped(const std::vector<std::uint32_t>& pages, TransferStyle style) const {
  SwapPlan plan = base();
  // In place of those of `base`, which are for plans whose moments come without a style.
  plan.reserve_pages = fetch_reserves(steps_.tape, style.reserve_ops);
  schedule_transfers(steps_.tape, touches_, {pages, levels_without(pages)},
                     compute_begins(steps_.tape), limits_, style, plan);
  return plan;
}

SwapPlan PlanAssembly::moved(std::vector<PlannedSwap> swaps) const {
  SwapPlan plan = base();
  plan.swaps = std::move(swaps);
  list_by_moment(plan, steps_.tape.ops.size());
  return plan;
}

StepPlan PlanAssembly::finish(SwapPlan swaps) && {
  StepPlan plan;
  plan.swaps = std::move(swaps);
  plan.swaps.estimate = estimate(plan.swaps);
  plan.replay_seconds = replay_seconds(tape_, replays_);
  plan.replays = std::move(replays_);
  plan.steps = std::move(steps_);
  return plan;
}

}  // namespace spillway::planner
