#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spillway/planner/strategies.h"
#include "swap_search.h"
#include "touch_intervals.h"
#include "transfer_schedule.h"

namespace spillway::planner {

/// Pages that are to be out between two uses of a value of the original tape.
struct ChosenGap {
  ValueIndex value = 0;
  OpIndex begin = 0;              ///< The operator that used it last.
  std::uint32_t covered_ops = 0;  ///< As in `Interval`.
  std::uint32_t pages = 0;
};

/// Turns what a strategy has decided into a plan: replays first, then what leaves and when. Keeps
/// references to tape and limits, which have been checked.
class PlanAssembly {
 public:
  /// Throws PlanError as `rewrite_tape`.
  PlanAssembly(const StepTape& tape, std::vector<Replay> replays, const SwapLimits& limits);

  const RewrittenTape& steps() const { return steps_; }
  const TouchIntervals& touches() const { return touches_; }  ///< Of the rewritten tape.

  /// Pages per interval of the rewritten tape for gaps of the original one. A replay that uses the
  /// value splits a gap.
  std::vector<std::uint32_t> pages_for(std::span<const ChosenGap> gaps) const;

  /// Pages live during each operator of the rewritten tape with these ones out.
  LevelTree levels_without(const std::vector<std::uint32_t>& pages) const;

  /// Nothing leaves by plan: the event model evicts what is used last and reads on demand.
  SwapPlan paged() const { return moved({}); }
  /// These pages per interval leave, at moments of this style.
  SwapPlan swapped(const std::vector<std::uint32_t>& pages, TransferStyle style) const;
  /// These swaps, at the moments that they tell.
  SwapPlan moved(std::vector<PlannedSwap> swaps) const;

  /// Judges swaps by the event model.
  StepEstimate estimate(const SwapPlan& swaps) const {
    return estimate_step(steps_.tape, swaps, limits_);
  }

  /// The whole plan, evaluated; without name.
  StepPlan finish(SwapPlan swaps) &&;

 private:
  SwapPlan base() const;

  const StepTape& tape_;
  const SwapLimits& limits_;
  std::vector<Replay> replays_;
  RewrittenTape steps_;
  TouchIntervals touches_;
  std::vector<std::uint32_t> live_pages_;
  std::vector<OpIndex> anchor_;  ///< Per operator: the last original one up to it, by old number.
};

}  // namespace spillway::planner
