#pragma once

#include <cstdint>
#include <vector>

#include "eviction_choice.h"
#include "touch_intervals.h"

namespace spillway::planner {

/// What the whole step would save in transfer seconds if one more page could stay during an
/// operator, for every operator: the prices at which the cheapest way to relieve them all is the
/// one that pays for itself interval by interval. Found by going after the excess, so they are
/// near, not exact.
std::vector<double> operator_prices(const TouchIntervals& touches,
                                    const std::vector<std::uint32_t>& live,
                                    std::uint32_t target_pages, PageCost cost);

/// The same where intervals can also be reduced without a transfer, at a cost per page of their
/// own (infinite where they cannot).
std::vector<double> operator_prices(const TouchIntervals& touches,
                                    const std::vector<std::uint32_t>& live,
                                    std::uint32_t target_pages, PageCost cost,
                                    const std::vector<double>& drop_costs);

/// Sum of the prices of the operators that each interval relieves.
std::vector<double> interval_values(const TouchIntervals& touches,
                                    const std::vector<double>& prices);

}  // namespace spillway::planner
