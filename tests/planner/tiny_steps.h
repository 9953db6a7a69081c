#pragma once

#include <cstdint>

#include "random_tapes.h"
#include "spillway/planner/swap_plan.h"

namespace spillway::planner {

/// A random step of 6 to 9 operators. Values of one page, since then nothing can leave in part.
inline StepTape tiny_step(std::uint64_t seed, std::uint32_t replayable_percent = 80) {
  return random_tape(seed, {.ops = static_cast<std::uint32_t>(6 + seed % 4),
                            .persistent = static_cast<std::uint32_t>(seed % 3),
                            .births_percent = 70,
                            .max_pages = 1,
                            .max_uses = 2,
                            .has_carried = false,
                            .replayable_percent = replayable_percent});
}

/// A disk that is not much quicker than its operators, so that everything matters.
inline SwapLimits tiny_limits(std::uint32_t budget_pages, std::uint64_t seed) {
  SwapLimits limits;
  limits.budget_pages = budget_pages;
  limits.refinement_ops = 3000;
  limits.rates.read = TransferRate(seed % 2 == 0 ? 1e9 : 4e9);
  limits.rates.write = TransferRate(seed % 3 == 0 ? 1e9 : 3e9);
  limits.rates.interference_seconds_per_byte = 0.0;
  limits.rates.duplex_share = seed % 5 == 0 ? 1.0 : 0.5;
  return limits;
}

}  // namespace spillway::planner
