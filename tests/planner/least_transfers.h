#pragma once

#include <cstdint>
#include <optional>

#include "spillway/profile/step_tape.h"

namespace spillway::planner {

/// What a transferred page costs.
struct PagePrice {
  std::uint32_t write = 1;
  std::uint32_t read = 1;
};

/// Least cost per step of any swapping whatever under that budget, on average over endless
/// repetitions that need not be equal: searches all states that the pages can be in. For tiny tapes
/// only, at most `kMostExactValues` values that fit a State; none for others, and
/// where some operator does not fit.
inline constexpr std::uint32_t kMostExactValues = 16;
std::optional<double> least_transfers(const profile::StepTape& tape, std::uint32_t budget_pages,
                                      PagePrice price);

}  // namespace spillway::planner
