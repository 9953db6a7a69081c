#include "downsets.h"

#include <gmock/gmock.h>

#include <set>

#include "branched_chains.h"
#include "set_costs.h"
#include "spillway/base/error.h"
#include "support/sanitized.h"

namespace spillway::layer_order {
namespace {

const partition::ProblemShape kShape{.layers = 8, .stages = 3};

/// Units of a downset as bits, of graphs of at most 64.
std::uint64_t bits_of(const Downsets& sets, std::uint32_t set) {
  std::uint64_t bits = 0;
  for (const std::uint32_t unit : sets.between(0, set)) bits |= std::uint64_t{1} << unit;
  return bits;
}

bool is_downset(const UnitGraph& graph, std::uint64_t bits) {
  for (std::uint32_t unit = 0; unit < graph.units(); ++unit)
    for (const std::uint32_t input : graph.inputs[unit])
      if ((bits >> unit & 1U) != 0 && (bits >> input & 1U) == 0) return false;
  return true;
}

TEST(Downsets, AreAllThatThereAre) {
  for (std::uint64_t seed = 0; seed < tries(200U, 20U); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const partition::PartitionProblem problem = random_branches(seed, kShape);
    const UnitGraph graph(problem.chain);
    const Downsets sets(graph, unit_orders(graph), 1000);
    ASSERT_TRUE(sets.are_all());
    std::set<std::uint64_t> found;
    for (std::uint32_t set = 0; set < sets.count(); ++set) {
      EXPECT_TRUE(found.insert(bits_of(sets, set)).second);
      EXPECT_EQ(sets.between(0, set).size(), sets.size(set));
      if (set > 0) {
        EXPECT_GE(sets.size(set), sets.size(set - 1));
      }
    }
    std::set<std::uint64_t> expected;
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << graph.units(); ++bits)
      if (is_downset(graph, bits)) expected.insert(bits);
    EXPECT_EQ(found, expected);
  }
}

TEST(Downsets, KeepTheOrdersWhereTheyAreTooMany) {
  // 20 branches of two layers: 3^20 downsets.
  std::vector<std::pair<partition::LayerIndex, partition::LayerIndex>> reads;
  for (partition::LayerIndex i = 0; i < 40; i += 2) reads.emplace_back(i, i + 1);
  const partition::PartitionProblem problem =
      branched_problem(std::vector<double>(40, 1.0), reads, 2);
  const UnitGraph graph(problem.chain);
  const std::vector<UnitOrder> orders = unit_orders(graph);
  ASSERT_GE(orders.size(), 2U);
  const Downsets sets(graph, orders, 400);
  EXPECT_FALSE(sets.are_all());
  EXPECT_LE(sets.count(), 41 * (9 + orders.size()));
  std::set<std::uint64_t> found;
  for (std::uint32_t set = 0; set < sets.count(); ++set) {
    EXPECT_TRUE(is_downset(graph, bits_of(sets, set)));
    EXPECT_TRUE(found.insert(bits_of(sets, set)).second);
  }
  for (const UnitOrder& order : orders) {
    std::uint64_t bits = 0;
    for (const std::uint32_t unit : order.units) {
      bits |= std::uint64_t{1} << unit;
      EXPECT_EQ(found.count(bits), 1U) << order.name;
    }
  }
}

/// The order that runs `small`, then what `large` has besides, then the rest.
LayerOrder order_through(const UnitGraph& graph, const Downsets& sets, std::uint32_t small,
                         std::uint32_t large) {
  std::vector<std::uint32_t> units;
  for (const auto& [from, to] :
       {std::pair{0U, small}, std::pair{small, large}, std::pair{large, sets.count() - 1}})
    for (const std::uint32_t unit : sets.between(from, to)) units.push_back(unit);
  return graph.layers_of(units);
}

TEST(SetCosts, AreThoseOfSegmentsOfAnOrderThroughBothSets) {
  std::uint32_t compared = 0;
  std::uint32_t reduced = 0;
  for (std::uint64_t seed = 0; seed < tries(60U, 6U); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const partition::PartitionProblem problem = random_branches(seed, {.layers = 6, .stages = 3});
    const UnitGraph graph(problem.chain);
    const Downsets sets(graph, unit_orders(graph), 1000);
    const UnitCosts units(problem, graph);
    const SetCosts costs(units, sets);
    for (std::uint32_t small = 0; small < sets.count(); ++small)
      for (std::uint32_t large = 0; large < sets.count(); ++large) {
        if (small == large || !sets.is_inside(small, large)) continue;
        partition::PartitionProblem other = problem;
        other.chain = reordered(problem.chain, order_through(graph, sets, small, large));
        try {
          const partition::SegmentCosts segments(other);
          for (std::uint32_t stage = 0; stage < costs.stages(); ++stage) {
            const partition::Segment segment{sets.size(small), sets.size(large), stage};
            const double expected = segments.least_seconds(segment, segments.device_bytes(stage));
            const double seconds = costs.least_seconds(small, large, stage);
            if (expected < partition::kNever) {
              EXPECT_NEAR(seconds, expected, 1e-9 * (1 + expected));
            } else {
              EXPECT_EQ(seconds, expected);
            }
            reduced += seconds > segments.load(segment).busy_seconds() * 1.001 ? 1 : 0;
            ++compared;
          }
        } catch (const ConfigError&) {
          continue;  // A unit fits on no device.
        }
      }
  }
  EXPECT_GT(compared, tries(5000U, 300U));
  EXPECT_GT(reduced, tries(500U, 20U));
}

}  // namespace
}  // namespace spillway::layer_order
