#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// Decisions of a SwapPlan, from which it can be made again on its tape.
struct SwapChoices {
  std::vector<PlannedSwap> swaps;
  std::vector<std::uint32_t> write_outs;      ///< Every swap, in the order in which they leave.
  std::vector<std::uint32_t> fetches;         ///< Those that come back, in the order of fetches.
  std::vector<std::uint32_t> reserve_pages;   ///< Per operator.
  std::vector<std::uint32_t> use_distance;    ///< Empty: as the tape tells. Parallel to its uses.
  std::vector<std::uint32_t> birth_distance;  ///< The same, per value.
  double filled_share = 0.0;
};

SwapChoices choices_of(const StepTape& tape, const SwapPlan& plan);

/// The plan with these choices: everything else is found anew, so the estimate is that of the given
/// limits; without a bound. Throws PlanError with the first choice that the tape contradicts.
/// The limits must be sensible.
SwapPlan restore_swaps(const StepTape& tape, const SwapChoices& choices, const SwapLimits& limits);

}  // namespace spillway::planner
