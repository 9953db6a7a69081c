#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace text_gpt {

struct ScheduleOptions {
  double peak = 3e-4;
  std::int64_t warmup_steps = 100;
  std::int64_t decay_steps = 5000;
};

/// Rises in a straight line to the peak, then falls along a cosine to a tenth of it, and stays
/// there. It does not depend on the length of the run, so a longer run begins like a shorter one.
inline double learning_rate(const ScheduleOptions& schedule, std::int64_t step) {
  const auto number = static_cast<double>(step);
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  if (number < warmup) return schedule.peak * number / warmup;
  const double fraction =
      std::min(1.0, (number - warmup) / static_cast<double>(schedule.decay_steps));
  const double height = 0.5 * (1.0 + std::cos(std::numbers::pi * fraction));
  return schedule.peak * (0.1 + 0.9 * height);
}

}  // namespace text_gpt
