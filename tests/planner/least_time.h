#pragma once

#include <cstdint>
#include <optional>

#include "spillway/profile/step_tape.h"

namespace spillway::planner {

/// Least ticks per step of any swapping whatever, on average over endless repetitions that need not
/// be equal: tries every page that could move in every tick, with operators that take as many
/// milliseconds as ticks, on a disk that moves one page per tick, in both directions if it is
/// duplex. For tiny tapes only; none where there is too much to try and where some
/// operator does not fit.
std::optional<double> least_ticks(const profile::StepTape& tape, std::uint32_t budget_pages,
                                  bool is_duplex);

}  // namespace spillway::planner
