#pragma once

#include <cstdint>
#include <optional>

#include "spillway/profile/step_tape.h"

namespace spillway::planner {

/// When an operator holds the peak inside of it; a real one does so somewhere in between.
enum class PeakMoment : std::uint8_t { kThroughout, kAtBegin, kAtEnd };

/// A disk that moves one page per tick in either direction.
struct TickDisk {
  bool is_duplex = false;  ///< Both directions in the same tick.
  PeakMoment peak = PeakMoment::kThroughout;
};

/// Least ticks per step of any swapping whatever, on average over endless repetitions that need not
/// be equal: tries every page that could move in every tick, with operators that take as many
/// milliseconds as ticks. For tiny tapes only; none where there is too much to try and where some
/// operator does not fit.
std::optional<double> least_ticks(const profile::StepTape& tape, std::uint32_t budget_pages,
                                  TickDisk disk);

}  // namespace spillway::planner
