#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/swap_plan.h"
#include "touch_intervals.h"

namespace spillway::planner {

/// Which swaps get the near one of two tiers first.
enum class TierRule : std::uint8_t {
  kShortest,   ///< Swaps that save the most seconds per time in the near tier.
  kLeastTime,  ///< Swaps with the least time to hide transfers of the far tier.
  kFirst,      ///< The first swaps, as long as there is room: no page is sent far by plan.
};

/// What a swap of an interval should get, whatever the rule says.
enum class TierWish : std::uint8_t { kNone, kNear, kFar };

/// Intervals whose pages one copy serves: those of an epoch, or all of a value that is never
/// written. They have one place, so one number stands for all: parallel to the intervals.
std::vector<std::uint32_t> copy_groups(const StepTape& tape, const TouchIntervals& touches);

/// For each interval, how many of the pages that leave go to the far tier, so that those that do
/// not fit the near one at every operator. Greedy. `begins`: when operators begin, in seconds, and
/// the end; `wishes`: by the first interval of a group (see `copy_groups`), or empty.
std::vector<std::uint32_t> choose_far_pages(const StepTape& tape, const TouchIntervals& touches,
                                            const std::vector<std::uint32_t>& pages,
                                            const std::vector<double>& begins,
                                            const SwapLimits& limits, TierRule rule,
                                            const std::vector<TierWish>& wishes);

}  // namespace spillway::planner
