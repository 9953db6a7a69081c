#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// What a plan does to single pages when every transfer is over at once.
struct PageReport {
  std::vector<std::string> faults;  ///< Broken rules, at most a handful.
  std::uint64_t written_pages = 0;  ///< Per repetition, once it has settled.
  std::uint64_t read_pages = 0;
};

/// Carries a plan out page by page and checks the rules: used pages are resident, what comes back
/// has a copy, the budget holds, and a fetch, its write-out and its next use belong to one storage.
/// Knows nothing of intervals, levels and estimates.
PageReport simulate_pages(const StepTape& tape, const SwapPlan& plan, std::uint32_t budget_pages);

}  // namespace spillway::planner
