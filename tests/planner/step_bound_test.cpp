#include <gtest/gtest.h>

#include <algorithm>

#include "least_time.h"
#include "random_tapes.h"
#include "spillway/planner/swap_plan.h"
#include "support/sanitized.h"
#include "swaps_alone.h"
#include "tick_limits.h"

namespace spillway::planner {
namespace {

StepTape tiny_tape(std::uint64_t seed) {
  StepTape tape = random_tape(seed, {.ops = 3 + static_cast<std::uint32_t>(seed % 4),
                                     .persistent = static_cast<std::uint32_t>(1 + seed % 3),
                                     .births_percent = 40,
                                     .max_pages = 2,
                                     .max_uses = 2,
                                     .has_carried = seed % 5 == 0,
                                     .has_long_lives = seed % 10 == 0});
  for (auto& op : tape.ops) op.time = std::chrono::milliseconds(op.signature % 3);
  return tape;
}

constexpr std::uint64_t kTinyTapes = tries(320, 40);

TEST(BoundStep, IsNeverAboveTheLeastTimeOfAnySwapping) {
  std::uint32_t cases = 0;
  std::uint32_t beyond_compute = 0;
  std::uint32_t tight = 0;
  for (std::uint64_t seed = 0; seed < kTinyTapes; ++seed) {
    const StepTape tape = tiny_tape(seed);
    for (std::uint32_t budget = std::max(1U, smallest_budget(tape)); budget < live_peak(tape);
         ++budget) {
      const bool is_duplex = seed % 2 == 0;
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " budget " << budget);
      const auto ticks = least_ticks(tape, budget, is_duplex);
      if (!ticks) continue;
      const StepBound bound = bound_of_swaps(tape, tick_limits(budget, is_duplex));
      EXPECT_LE(bound.step_seconds * 1e3, *ticks + 1e-6);
      ++cases;
      if (bound.step_seconds > bound.compute_seconds * 1.001) ++beyond_compute;
      if (bound.step_seconds * 1e3 > *ticks * 0.95) ++tight;
    }
  }
  EXPECT_GT(cases, kTinyTapes);
  EXPECT_GT(beyond_compute, cases / 3);
  EXPECT_GT(tight, cases * 3 / 4) << "a bound that is far too low says nothing";
  RecordProperty("cases", static_cast<int>(cases));
  RecordProperty("beyond_compute", static_cast<int>(beyond_compute));
  RecordProperty("tight", static_cast<int>(tight));
}

}  // namespace
}  // namespace spillway::planner
