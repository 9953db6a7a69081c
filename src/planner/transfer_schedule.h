#pragma once

#include <cstdint>
#include <vector>

#include "eviction_choice.h"
#include "spillway/planner/swap_plan.h"
#include "touch_intervals.h"

namespace spillway::planner {

/// When each operator of the step begins if nothing ever waits, in seconds; the last entry is the
/// length of the step.
std::vector<double> compute_begins(const StepTape& tape);

/// Turns chosen pages into swaps with moments: write-outs early or late, fetches as late as the
/// read rate allows, moved forward by twice their own duration where the level leaves room. Fills
/// `swaps`, `write_outs` and `fetches` of the plan.
void schedule_transfers(const StepTape& tape, const TouchIntervals& touches, EvictionChoice choice,
                        const std::vector<double>& begins, const SwapLimits& limits,
                        SwapPlan& plan);

/// Pages that fetches must leave free at each operator for what the next ones allocate.
std::vector<std::uint32_t> fetch_reserves(const StepTape& tape);

}  // namespace spillway::planner
