#pragma once

#include <cstdint>

#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// One page per millisecond in either direction.
inline SwapLimits tick_limits(std::uint32_t budget_pages, bool is_duplex) {
  SwapLimits limits;
  limits.budget_pages = budget_pages;
  limits.rates.write = limits.rates.read =
      TransferRate(1e3 * static_cast<double>(limits.page_size.count()));
  limits.rates.duplex_share = is_duplex ? 1.0 : 0.5;
  limits.rates.interference_seconds_per_byte = 0.0;
  return limits;
}

}  // namespace spillway::planner
