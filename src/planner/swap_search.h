#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "eviction_choice.h"
#include "spillway/planner/swap_plan.h"
#include "touch_intervals.h"
#include "transfer_schedule.h"

namespace spillway::planner {

/// A plan must be complete, or else faster by so much, to be better.
inline bool is_better(const StepEstimate& now, const StepEstimate& before,
                      double worthwhile = 1.0) {
  if (now.is_complete != before.is_complete) return now.is_complete;
  return now.step_seconds < before.step_seconds * worthwhile;
}

/// All that one try of a swap plan is made from.
struct SwapStyle {
  double share = 0.0;  ///< Of the budget to fill.
  ChoiceRule rule = ChoiceRule::kLeastCost;
  TransferStyle transfers;
};

struct StyledSwaps {
  SwapStyle style;
  SwapPlan plan;
};

/// Builds swap plans for one tape from what they share and evaluates them by the event model. Keeps
/// references to tape and limits. Leaves `SwapPlan::bound` empty.
class SwapSearch {
 public:
  SwapSearch(const StepTape& tape, const SwapLimits& limits);

  /// A single try.
  SwapPlan plan(const SwapStyle& style);
  /// The best of all shares, rules and moments, refined with up to so many simulated operators.
  /// Asks between tries, from the second one on, whether to stop.
  StyledSwaps best(std::size_t refinement_ops, const StopCheck& should_stop = {});

 private:
  struct Candidate {
    EvictionChoice choice;
    SwapStyle style;
    SwapPlan plan;
  };

  bool is_needed() const;
  bool may_choose_tiers() const;
  bool is_stopped() const { return best_ && should_stop_ && should_stop_(); }
  EvictionChoice choose(double share, ChoiceRule rule) const;
  Candidate best_with(double share);
  bool try_candidate(EvictionChoice choice, SwapStyle style, double worthwhile);
  const std::vector<std::uint32_t>& reserves(std::uint32_t ahead);
  bool is_good_enough() const;
  bool try_styles();
  bool refine();
  bool try_tiers();
  std::int64_t keepable(std::uint32_t index) const;
  std::int64_t takable(std::uint32_t index) const;
  bool try_change(std::uint32_t index, std::int64_t change);

  const StepTape& tape_;
  const SwapLimits& limits_;
  const TouchIntervals touches_;
  const std::vector<std::uint32_t> live_pages_;
  const std::vector<double> begins_;
  const PageCost cost_;
  std::vector<std::uint32_t> groups_;  ///< See `copy_groups`; found when they are asked for.
  SwapPlan base_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> reserves_;  ///< By operators ahead.
  std::optional<Candidate> best_;
  StopCheck should_stop_;
  std::size_t tries_left_ = 0;
};

}  // namespace spillway::planner
