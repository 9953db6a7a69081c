#pragma once

#include <cstdint>
#include <vector>

#include "eviction_choice.h"
#include "touch_intervals.h"

namespace spillway::planner {

/// Chooses for every interval the cheaper of moving its pages and recomputing them, and of all
/// of them what brings no operator above the target for the least cost: greedily at dual prices.
/// `drop_costs` are seconds per page and interval, infinite where nothing can be dropped. Returns
/// the intervals to drop.
std::vector<std::uint32_t> choose_drops(const TouchIntervals& touches,
                                        const std::vector<std::uint32_t>& live,
                                        std::uint32_t target_pages, PageCost cost,
                                        const std::vector<double>& drop_costs);

}  // namespace spillway::planner
