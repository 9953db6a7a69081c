#pragma once

#include <cstdint>
#include <optional>

#include "spillway/profile/step_tape.h"

namespace spillway::planner {

/// As `least_ticks`, for plans that may also drop a value that is used later in the step, and run
/// replayable operators of the step again whenever their inputs are there as they found them.
/// Values come to a replay as they are at that time, so one that was overwritten has to be
/// recomputed first; what a replay makes may be kept, dropped or moved like anything else, dead
/// values included. None where there is too much to try and where some operator does not fit.
std::optional<double> least_ticks_with_replays(const profile::StepTape& tape,
                                               std::uint32_t budget_pages, bool is_duplex);

}  // namespace spillway::planner
