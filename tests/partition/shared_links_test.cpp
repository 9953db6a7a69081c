#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "random_problems.h"
#include "spillway/planner/partition/partition_estimate.h"
#include "support/sanitized.h"

namespace spillway::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Whether cuts take at most so long in so many bytes, hosts added up.
bool are_possible(const SegmentCosts& costs, const Cuts& cuts, double seconds, double bytes) {
  const PartitionProblem& problem = costs.problem();
  std::vector<double> used(problem.host_swap_seconds_per_byte.size(), 0.0);
  for (std::uint32_t k = 0; k < costs.stages(); ++k) {
    const double need =
        costs.swap_need({cuts[k], cuts[k + 1], k}, seconds, std::min(bytes, costs.device_bytes(k)));
    used[problem.devices[k].host] += need;
  }
  for (std::size_t host = 0; host < used.size(); ++host)
    if (used[host] * problem.host_swap_seconds_per_byte[host] > seconds * (1 + 1e-13)) return false;
  return true;
}

/// The least x for which `holds`, by bisection; infinite where it never does.
double least_that(const std::function<bool(double)>& holds) {
  double low = 0.0;
  double high = 1e7;
  if (!holds(high)) return kInfinite;
  for (int i = 0; i < 90; ++i) {
    const double middle = low + (high - low) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

/// Of all cuts.
double least_of(const SegmentCosts& costs,
                const std::function<bool(const Cuts& cuts, double at)>& holds) {
  std::vector<Cuts> all;
  for_all_cuts(costs.units(), costs.stages(), [&](const Cuts& cuts) { all.push_back(cuts); });
  return least_that([&](double at) {
    return std::any_of(all.begin(), all.end(), [&](const Cuts& cuts) { return holds(cuts, at); });
  });
}

const ProblemShape kShapes[] = {
    {.layers = 6, .stages = 3, .has_shared_links = true},
    {.layers = 7, .stages = 4, .has_borders = false, .has_links = false, .has_shared_links = true},
};

TEST(SharedLinks, LeastTimeEqualsAllCutsTried) {
  std::uint64_t shared = 0;
  for (const ProblemShape& shape : kShapes) {
    for_random_costs(tries(1000U, 80U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      const double expected = least_of(costs, [&](const Cuts& cuts, double seconds) {
        return are_possible(costs, cuts, seconds, kInfinite);
      });
      const auto solved = least_time_cuts(costs);
      ASSERT_EQ(solved.has_value(), expected < kInfinite);
      if (!solved) return;
      shared += !costs.shared_links().empty();
      EXPECT_NEAR(solved->worst, expected, 1e-9 * (1 + expected));
      EXPECT_TRUE(are_possible(costs, solved->cuts, solved->worst * (1 + 1e-10), kInfinite));
    });
  }
  EXPECT_GT(shared, tries(500U, 40U));
}

TEST(SharedLinks, LeastMemoryEqualsAllCutsTried) {
  for (const ProblemShape& shape : kShapes) {
    for_random_costs(tries(1000U, 80U), shape, [&](const SegmentCosts& costs, std::uint64_t seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      const double seconds = 20.0 + static_cast<double>(seed % 60);
      const double expected = least_of(costs, [&](const Cuts& cuts, double bytes) {
        return are_possible(costs, cuts, seconds, bytes);
      });
      const auto solved = least_memory_cuts(costs, seconds);
      ASSERT_EQ(solved.has_value(), expected < kInfinite);
      if (!solved) return;
      EXPECT_NEAR(solved->worst, expected, 1e-9 * (1 + expected));
    });
  }
}

TEST(SharedLinks, TheSimulatorGivesEachStageWhatItNeeds) {
  std::uint64_t fluid = 0;
  for_random_costs(
      tries(300U, 40U), kShapes[0], [&](const SegmentCosts& costs, std::uint64_t seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const auto solved = least_time_cuts(costs);
        if (!solved) return;
        const PartitionEstimate estimate = evaluate(costs, solved->cuts);
        EXPECT_TRUE(estimate.fits);
        EXPECT_NEAR(estimate.fluid_seconds, solved->worst, 1e-9 * solved->worst);
        EXPECT_GE(estimate.seconds, estimate.fluid_seconds * (1 - 1e-9));
        std::vector<double> used(costs.problem().host_swap_seconds_per_byte.size(), 0.0);
        for (std::uint32_t k = 0; k < costs.stages(); ++k) {
          EXPECT_LE(estimate.stages[k].memory.count(), std::ceil(costs.device_bytes(k)));
          used[costs.problem().devices[k].host] +=
              static_cast<double>(estimate.stages[k].swapped.count()) - 1.0;  // Rounded up.
        }
        for (std::size_t host = 0; host < used.size(); ++host)
          EXPECT_LE(used[host] * costs.problem().host_swap_seconds_per_byte[host],
                    estimate.seconds * (1 + 1e-9));
        fluid += estimate.rounding_gap < 1e-9;
      });
  EXPECT_GT(fluid, 0U);
}

TEST(SharedLinks, HalfOfAHostsLinkIsNotWhatTwoUnequalStagesNeed) {
  // The first stage needs all of the link, the second one nothing of it.
  PartitionProblem problem;
  ModelLayer large;
  large.name = "large";
  large.forward_seconds = 1.0;
  large.backward_seconds = 1.0;
  large.stash = Bytes(100);
  ModelLayer small = large;
  small.stash = Bytes(10);
  problem.chain.layers = {large, small};
  problem.devices.assign(2, {.memory = Bytes(20), .swap_seconds_per_byte = 0.01, .host = 0});
  problem.host_swap_seconds_per_byte = {0.1};
  const auto solved = least_time_cuts(SegmentCosts(problem));
  ASSERT_TRUE(solved);
  EXPECT_NEAR(solved->worst, 8.0, 1e-9);  // 80 bytes at 10 per second.
}

}  // namespace
}  // namespace spillway::planner
