#include "exhaustive.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "clp.h"
#include "spillway/base/error.h"
#include "spillway/planner/step_bound.h"
#include "spillway/planner/strategies.h"
#include "support/sanitized.h"
#include "tiny_steps.h"

namespace spillway::planner {
namespace {

/// Random steps of 6 to 9 operators, all of different seeds.
constexpr std::uint64_t kShards = tries(20, 5);
constexpr std::uint32_t kStepsPerShard = tries(50, 3);

/// The exhaustive plan tries every set, but the moments of no more than two swaps at once: had it
/// missed something that ours finds in one of these steps, that would show too.
constexpr double kQuickest = 1.0 - 1e-6;
/// Ours sets the moments of all swaps alike, which costs most where one swap is all that there is.
constexpr double kWorst = 1.2;
constexpr double kWorstMean = 1.02;
constexpr double kFewestEqual = 0.75;
/// Most seeds that a shard looks at: some give steps that fit, or that have too much to try.
constexpr std::uint64_t kMostSeeds = 10;

/// Our planner and everything that can be tried, one budget per step.
class OursAndExhaustive : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(OursAndExhaustive, AreEqualInMostSteps) {
  std::uint32_t steps = 0;
  std::uint32_t equal = 0;
  double sum = 0.0;
  const std::uint64_t first = 100 + GetParam();
  const std::uint64_t end = first + kMostSeeds * kShards * kStepsPerShard;
  for (std::uint64_t seed = first; seed < end && steps < kStepsPerShard; seed += kShards) {
    const StepTape tape = tiny_step(seed);
    const std::uint32_t least_budget = std::max(1U, smallest_budget(tape));
    const std::uint32_t most_budget = live_peak(tape);
    if (least_budget >= most_budget) continue;
    const auto budget =
        least_budget + static_cast<std::uint32_t>(seed / 7 % (most_budget - least_budget));
    SCOPED_TRACE(::testing::Message() << "seed " << seed << " budget " << budget);
    const SwapLimits limits = tiny_limits(budget, seed);
    double least = 0.0;
    try {
      least = exhaustive_plan(tape, limits).swaps.estimate.step_seconds;
    } catch (const PlanError&) {
      continue;  // Too many choices.
    }
    const double ours = plan_step(tape, limits).swaps.estimate.step_seconds;
    const double bound = bound_plan(tape, limits, {.solver = clp()}).step_seconds * (1.0 - 1e-6);
    EXPECT_GE(ours, bound);
    EXPECT_GE(least, bound);
    const double ratio = ours / least;
    EXPECT_GE(ratio, kQuickest);
    EXPECT_LE(ratio, kWorst);
    ++steps;
    equal += ratio <= 1.0 + 1e-6 ? 1 : 0;
    sum += ratio;
  }
  RecordProperty("equal", static_cast<int>(equal));
  RecordProperty("mean_ratio", std::to_string(sum / steps));
  EXPECT_EQ(steps, kStepsPerShard);
  if (kIsSanitized) return;  // A few steps say nothing about shares of them.
  EXPECT_LE(sum / steps, kWorstMean);
  EXPECT_GE(equal, kFewestEqual * steps);
}

/// Steps of which nothing can be recomputed: swaps alone are tried, and both of our strategies are
/// held to them.
TEST(OursWithoutReplays, AreNearTheBestOfAllSwapsOnTinySteps) {
  std::uint32_t steps = 0;
  std::map<std::string_view, double> sums;
  for (std::uint64_t seed = 0; seed < tries(80U, 8U); ++seed) {
    const StepTape tape = tiny_step(seed, 0);
    if (tape.ops.size() > 7) continue;  // More stretches than it tries all sets of.
    for (std::uint32_t budget = std::max(1U, smallest_budget(tape)); budget < live_peak(tape);
         ++budget) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " budget " << budget);
      const SwapLimits limits = tiny_limits(budget, seed);
      const StepPlan all = exhaustive_plan(tape, limits);
      for (const std::string_view name : {"spillway", "offload-only"}) {
        const StepPlan ours = strategy_named(name).plan(tape, limits);
        const double ratio = ours.swaps.estimate.step_seconds / all.swaps.estimate.step_seconds;
        EXPECT_GE(ratio, kQuickest) << name;
        EXPECT_LE(ratio, kWorst) << name;
        sums[name] += ratio;
      }
      ++steps;
    }
  }
  EXPECT_GT(steps, tries(40U, 2U));
  for (const auto& [name, sum] : sums) EXPECT_LE(sum / steps, kWorstMean) << name;
}

INSTANTIATE_TEST_SUITE_P(Shards, OursAndExhaustive, ::testing::Range(std::uint64_t{0}, kShards));

}  // namespace
}  // namespace spillway::planner
