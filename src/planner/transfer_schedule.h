#pragma once

#include <cstdint>
#include <vector>

#include "eviction_choice.h"
#include "spillway/planner/swap_plan.h"
#include "touch_intervals.h"

namespace spillway::planner {

inline constexpr std::uint32_t kChunkPages = 8;  ///< Moved as a whole by the event model.

/// When each operator of the step begins if nothing ever waits, in seconds; the last entry is the
/// length of the step.
std::vector<double> compute_begins(const StepTape& tape);

/// Seconds of a page among seven others, fixed costs included.
PageCost page_cost(const TransferRates& rates, Bytes page_size);

/// The same under these limits. With two tiers it is between theirs: `excess_pages`, by which the
/// step exceeds the budget, tell how much of what leaves finds room in the near one.
PageCost page_cost(const SwapLimits& limits, std::uint32_t excess_pages);

/// When a write-out starts: as soon as the last use has passed, or just in time for the room.
enum class WriteOutMoment : std::uint8_t { kEarly, kLate };

/// How far transfers go ahead of what needs them.
struct TransferStyle {
  WriteOutMoment write_outs = WriteOutMoment::kEarly;
  double lead_durations = 2.0;    ///< A transfer starts so many of its durations before it must.
  std::uint32_t reserve_ops = 6;  ///< Operators whose room fetches must not take.
  TierRule tiers = TierRule::kShortest;
};

/// Groups the swaps of a plan by the operators of their write-outs and fetches, the fetches before
/// one operator by urgency.
void list_by_moment(SwapPlan& plan, std::size_t op_count);

/// Turns chosen pages into swaps with moments: write-outs early or late, fetches as late as the
/// read rate allows, moved forward by the lead where the level leaves room. Fills `swaps`,
/// `write_outs` and `fetches` of the plan.
void schedule_transfers(const StepTape& tape, const TouchIntervals& touches, EvictionChoice choice,
                        const std::vector<double>& begins, const SwapLimits& limits,
                        TransferStyle style, SwapPlan& plan);

/// Pages that fetches must leave free at each operator for what the next `ahead` ones allocate.
std::vector<std::uint32_t> fetch_reserves(const StepTape& tape, std::uint32_t ahead);

}  // namespace spillway::planner
