#pragma once

#include <cstdint>

#include "spillway/profile/step_tape.h"

namespace spillway::planner {

struct RandomTapeShape {
  std::uint32_t ops = 20;
  std::uint32_t persistent = 4;       ///< Values that live for ever.
  std::uint32_t births_percent = 60;  ///< Chance of an operator to have an output.
  std::uint32_t max_pages = 8;
  std::uint32_t max_uses = 3;
  bool has_carried = true;               ///< Values that are born in one step and die in the next.
  bool has_long_lives = false;           ///< The carried ones live through a whole step in between.
  std::uint32_t replayable_percent = 0;  ///< Chance of an operator to be one that may run again.
};

/// A consistent, repeating tape; equal seeds give equal tapes.
profile::StepTape random_tape(std::uint64_t seed, const RandomTapeShape& shape);

/// Fewest pages written plus read per repetition under that budget, by trying everything. Only for
/// tiny tapes without values that cross the step boundary under another number. 0 pages is a valid
/// answer; `kImpossible` when some operator does not fit.
inline constexpr std::uint64_t kImpossible = static_cast<std::uint64_t>(-1);
std::uint64_t fewest_transfers(const profile::StepTape& tape, std::uint32_t budget_pages);

}  // namespace spillway::planner
