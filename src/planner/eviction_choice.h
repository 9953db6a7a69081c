#pragma once

#include <cstdint>
#include <vector>

#include "level_tree.h"
#include "tier_choice.h"
#include "touch_intervals.h"

namespace spillway::planner {

/// How the next page to leave is chosen where the level is too high.
enum class ChoiceRule : std::uint8_t {
  kFarthestUse,  ///< Belady: the interval that ends last; what dies unused only as a last resort.
  kLeastCost,    ///< The fewest transfer seconds per reduced operator.
  kBestValue,    ///< The fewest transfer seconds for what the reduced operators pay.
};

/// Seconds to move one page.
struct PageCost {
  double write = 0.0;
  double read = 0.0;
};

/// How many pages of each interval leave.
struct EvictionChoice {
  std::vector<std::uint32_t> pages;  ///< Parallel to the intervals.
  LevelTree levels;                  ///< Resident pages, if all chosen pages leave at once.
  std::vector<TierWish> wishes{};    ///< See `choose_far_pages`.
};

/// Chooses pages so that no operator sees more than `target_pages` (or, where its own needs exceed
/// that, nothing but them). Pages of the same value may leave in several intervals.
EvictionChoice choose_evictions(const TouchIntervals& touches,
                                const std::vector<std::uint32_t>& live, std::uint32_t target_pages,
                                ChoiceRule rule, PageCost cost);

}  // namespace spillway::planner
