#include "spillway/planner/layer_order/layer_order.h"

#include <gmock/gmock.h>

#include <limits>

#include "branched_chains.h"
#include "spillway/base/error.h"
#include "spillway/planner/partition/cut_solvers.h"
#include "support/error_text.h"
#include "support/golden_part.h"
#include "support/sanitized.h"

namespace spillway::layer_order {
namespace {

using ::testing::ElementsAre;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr OrderEffort kNamedOnly{0, 0};

/// Of all orders and all their cuts, each tried.
double least_of_all(const partition::PartitionProblem& problem) {
  double least = kInfinite;
  for_all_orders(problem.chain, [&](const LayerOrder& order) {
    partition::PartitionProblem other = problem;
    other.chain = reordered(problem.chain, order);
    const partition::SegmentCosts costs(other);
    partition::for_all_cuts(costs.units(), costs.stages(), [&](const partition::Cuts& cuts) {
      double worst = 0.0;
      for (std::uint32_t k = 0; k < costs.stages() && worst < least; ++k)
        worst =
            std::max(worst, costs.least_seconds({cuts[k], cuts[k + 1], k}, costs.device_bytes(k)));
      least = std::min(least, worst);
    });
  });
  return least;
}

/// What the best cuts of an order take.
double seconds_of(const partition::PartitionProblem& problem, const LayerOrder& order) {
  partition::PartitionProblem other = problem;
  other.chain = reordered(problem.chain, order);
  const auto solved = partition::least_time_cuts(partition::SegmentCosts(other));
  return solved ? solved->worst : kInfinite;
}

TEST(ChooseOrder, EqualsAllOrdersTried) {
  std::uint32_t solved = 0;
  std::uint32_t impossible = 0;
  std::uint32_t gained = 0;
  std::uint32_t named_lose = 0;
  const partition::ProblemShape free{
      .layers = 6, .stages = 3, .has_links = false, .has_ties = false};
  const partition::ProblemShape linked{.layers = 6, .stages = 2};
  const partition::ProblemShape deep{.layers = 7, .stages = 4};
  for (const partition::ProblemShape& shape : {free, linked, deep})
    for (std::uint64_t seed = 0; seed < tries(400U, 12U); ++seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", stages " << shape.stages);
      const partition::PartitionProblem problem = random_branches(seed, shape);
      OrderChoice choice;
      try {
        choice = choose_order(problem);
      } catch (const ConfigError&) {
        continue;  // A unit fits on no device.
      }
      const double least = least_of_all(problem);
      EXPECT_TRUE(choice.is_exact);
      EXPECT_EQ(choice.recorded_seconds, seconds_of(problem, {}));
      EXPECT_EQ(choice.seconds, seconds_of(problem, choice.layers));
      EXPECT_EQ(choice.loss(), 0.0);
      if (least == kInfinite) {
        EXPECT_EQ(choice.seconds, kInfinite);
        ++impossible;
        continue;
      }
      EXPECT_NEAR(choice.seconds, least, 1e-8 * least);
      gained += choice.seconds < choice.recorded_seconds * (1 - 1e-9) ? 1 : 0;
      ++solved;
      // The bound that holds without looking at sets of layers.
      const OrderChoice named = choose_order(problem, kNamedOnly);
      EXPECT_LE(named.bound_seconds, least * (1 + 1e-9));
      EXPECT_GE(named.seconds, least * (1 - 1e-9));
      EXPECT_EQ(named.downsets, 0U);
      named_lose += named.seconds > least * (1 + 1e-9) ? 1 : 0;
    }
  EXPECT_GT(solved, tries(900U, 20U));
  EXPECT_GT(impossible, tries(5U, 0U));
  EXPECT_GT(gained, tries(150U, 4U));
  EXPECT_GT(named_lose, tries(40U, 0U));
}

TEST(ChooseOrder, PutsBranchesTogetherThatTheRecordedOrderKeepsApart) {
  // Branches of 2, 3 and 1 seconds: as recorded one stage has 4, and {2, 1} beside {3} is 3.
  const partition::PartitionProblem problem =
      branched_problem({0, 2, 3, 1, 0}, {{0, 1}, {0, 2}, {0, 3}, {1, 4}, {2, 4}, {3, 4}}, 2);
  const OrderChoice choice = choose_order(problem);
  EXPECT_EQ(choice.recorded_seconds, 4.0);
  EXPECT_EQ(choice.seconds, 3.0);
  EXPECT_EQ(choice.bound_seconds, 3.0);
  EXPECT_TRUE(choice.is_exact);
  EXPECT_FALSE(choice.layers.empty());
  check(problem.chain, choice.layers);
}

/// Two towers of four layers, recorded in step, and what reads both.
partition::PartitionProblem towers() {
  partition::PartitionProblem problem = branched_problem(
      {1, 1, 1, 1, 1, 1, 1, 1, 1}, {{0, 2}, {2, 4}, {4, 6}, {6, 8}, {1, 3}, {3, 5}, {5, 7}, {7, 8}},
      2, Bytes(10));
  problem.chain.borders[3].bytes = problem.chain.borders[7].bytes = Bytes(1);
  return problem;
}

TEST(ChooseOrder, CutsBetweenTowersWhereTensorsInsideAreLarge) {
  partition::PartitionProblem problem = towers();
  problem.links = {{0.0, TransferRate(1.0 / 0.3)}};
  const OrderChoice choice = choose_order(problem);
  // As recorded a cut near the middle sends 20 bytes in 6 s. One tower, of which a byte is sent,
  // and what is left take 4 and 5 s.
  EXPECT_EQ(choice.seconds, 5.0);
  EXPECT_DOUBLE_EQ(choice.recorded_seconds, 6.0);
  EXPECT_EQ(choice.name, "depth-first");
  EXPECT_TRUE(choice.is_exact);
}

TEST(ChooseOrder, KeepsTheRecordedOrderAmongEquals) {
  const OrderChoice choice = choose_order(towers());  // Messages take no time.
  EXPECT_EQ(choice.name, "recorded");
  EXPECT_TRUE(choice.layers.empty());
  EXPECT_EQ(choice.seconds, choice.recorded_seconds);
}

TEST(ChooseOrder, LeavesChainsAlone) {
  partition::PartitionProblem problem = branched_problem({2, 3, 1}, {}, 2);
  problem.chain.may_reorder = false;
  EXPECT_EQ(choose_order(problem).seconds, 4.0);
  problem.chain.may_reorder = true;  // Three layers that read nothing of each other.
  EXPECT_EQ(choose_order(problem).seconds, 3.0);
  problem.chain.dependences = {{0, 1}, {1, 2}};
  EXPECT_EQ(choose_order(problem).seconds, 4.0);
}

/// Branches of three layers side by side, of times that share no divisor.
partition::PartitionProblem many_branches(std::uint32_t branches, std::uint32_t stages) {
  std::vector<double> seconds{0.1};
  std::vector<std::pair<partition::LayerIndex, partition::LayerIndex>> reads;
  const partition::LayerIndex last = 3 * branches + 1;
  for (std::uint32_t i = 0; i < branches; ++i)
    for (std::uint32_t j = 0; j < 3; ++j) {
      const auto here = static_cast<partition::LayerIndex>(seconds.size());
      seconds.push_back(1.0 + 0.37 * ((7 * i + 3 * j) % 11));
      reads.emplace_back(j == 0 ? 0 : here - 1, here);
      if (j == 2) reads.emplace_back(here, last);
    }
  seconds.push_back(0.1);
  return branched_problem(seconds, reads, stages);
}

TEST(ChooseOrder, SaysWhatItMayLoseWhereThereAreTooManyOrders) {
  const partition::PartitionProblem problem = many_branches(24, 7);  // 4^24 downsets.
  const OrderChoice choice = choose_order(problem);
  EXPECT_FALSE(choice.is_exact);
  EXPECT_GT(choice.downsets, 1000U);
  EXPECT_LE(choice.seconds, choice.recorded_seconds);
  for (const NamedOrder& each : named_orders(problem.chain))
    EXPECT_LE(choice.seconds, seconds_of(problem, each.layers)) << each.name;
  EXPECT_GT(choice.loss(), 0.0);
  EXPECT_LT(choice.loss(), 0.05);
  EXPECT_DOUBLE_EQ(choice.seconds / choice.bound_seconds - 1.0, choice.loss());
  const OrderChoice again = choose_order(problem);
  EXPECT_EQ(again.layers, choice.layers);
}

TEST(ChooseOrder, StopsWhereItsEffortEnds) {
  const partition::PartitionProblem problem = many_branches(5, 4);  // 1,026 downsets.
  EXPECT_TRUE(choose_order(problem).is_exact);
  OrderEffort little;
  little.steps = 10;
  const OrderChoice choice = choose_order(problem, little);
  EXPECT_FALSE(choice.is_exact);
  EXPECT_GE(choice.seconds, choose_order(problem).seconds);
}

TEST(NamedOrders, FollowBranchesAsTheirNamesSay) {
  // Two branches of two layers, recorded in step: 0 to 1 and 2, to 3 and 4, to 5.
  const partition::PartitionProblem problem =
      branched_problem({1, 1, 1, 1, 1, 1}, {{0, 1}, {0, 2}, {1, 3}, {2, 4}, {3, 5}, {4, 5}}, 2);
  const auto orders = named_orders(problem.chain);
  ASSERT_EQ(orders.size(), 3U);
  EXPECT_EQ(orders[0].name, "recorded");
  EXPECT_THAT(orders[0].layers, ElementsAre(0, 1, 2, 3, 4, 5));  // Breadth-first, too.
  EXPECT_EQ(orders[1].name, "depth-first");
  EXPECT_THAT(orders[1].layers, ElementsAre(0, 1, 3, 2, 4, 5));
  EXPECT_EQ(orders[2].name, "from-the-end");
  EXPECT_THAT(orders[2].layers, ElementsAre(0, 2, 4, 1, 3, 5));
}

TEST(NamedOrders, NarrowReadsLargeTensorsSoon) {
  // Layers 1, 2 and 3 make 8, 1 and 4 bytes of 1, 9 and 5 that nobody else reads.
  partition::PartitionProblem problem =
      branched_problem({1, 1, 1, 1, 1}, {{0, 1}, {0, 2}, {0, 3}, {1, 4}, {2, 4}, {3, 4}}, 2);
  const std::uint64_t sizes[] = {1, 9, 5, 8, 1, 4};
  for (std::size_t i = 0; i < 6; ++i) problem.chain.borders[i].bytes = Bytes(sizes[i]);
  const auto orders = named_orders(problem.chain);
  EXPECT_EQ(orders.back().name, "narrow");
  EXPECT_THAT(orders.back().layers, ElementsAre(0, 2, 3, 1, 4));
}

TEST(LayerOrder, MovesAllThatNamesLayers) {
  partition::PartitionProblem problem =
      branched_problem({1, 2, 3, 4, 5}, {{0, 1}, {0, 3}, {2, 4}, {3, 4}}, 2);
  partition::ModelChain& chain = problem.chain;
  chain.borders[0].consumers = {1, 4};
  chain.layers[1].parameters = chain.layers[4].parameters = Bytes(7);
  chain.ties = {{{1, 4}, Bytes(7)}};
  chain.together = {{1, 2}};
  chain.dependences = {{0, 2}};
  const partition::ModelChain moved = reordered(chain, {0, 3, 1, 2, 4});
  partition::check(moved);
  EXPECT_EQ(moved.layers[1].forward_seconds, 4.0);
  EXPECT_THAT(moved.borders[0].consumers, ElementsAre(2, 4));
  EXPECT_THAT(moved.borders[1].consumers, ElementsAre(1));
  EXPECT_EQ(moved.borders[3].producer, 1U);
  EXPECT_THAT(moved.ties[0].layers, ElementsAre(2, 4));
  EXPECT_EQ(moved.together[0].first, 2U);
  EXPECT_EQ(moved.together[0].last, 3U);
  EXPECT_EQ(moved.dependences[0].after, 3U);
  EXPECT_TRUE(moved.may_reorder);
}

TEST(LayerOrder, TellsWhichLayersAStageHas) {
  const LayerOrder order{0, 4, 5, 1, 2, 3, 6};
  const auto text = [&](partition::LayerIndex first, partition::LayerIndex last) {
    std::string ranges;
    for (const partition::LayerRange& range : layers_at(order, first, last))
      ranges += message("{}-{} ", range.first, range.last);
    return ranges;
  };
  EXPECT_EQ(text(0, 2), "0-0 4-5 ");
  EXPECT_EQ(text(1, 6), "1-6 ");
  EXPECT_EQ(layers_at({}, 2, 5).front().last, 5U);
  EXPECT_EQ(layer_at(order, 1), 4U);
  EXPECT_EQ(layer_at({}, 1), 1U);
}

TEST(LayerOrder, RefusesOrdersThatAreNone) {
  GoldenPart golden;
  partition::PartitionProblem problem = branched_problem({1, 1, 1, 1}, {{0, 1}, {0, 2}, {0, 3}}, 2);
  partition::ModelChain& chain = problem.chain;
  const auto reason = [&](const LayerOrder& order) -> std::string {
    return error_text<ConfigError>([&] { check(chain, order); });
  };
  EXPECT_EQ(reason({0, 3, 2, 1}), "accepted");
  EXPECT_EQ(reason({}), "accepted");
  golden.add(reason({0, 1, 2}));
  golden.add(reason({0, 1, 2, 2}));
  golden.add(reason({0, 1, 2, 4}));
  golden.add(reason({1, 0, 2, 3}));
  chain.dependences = {{1, 3}};
  golden.add(reason({0, 3, 2, 1}));
  chain.together = {{1, 2}};
  golden.add(reason({0, 2, 1, 3}));
  chain.may_reorder = false;
  EXPECT_EQ(reason({0, 1, 2, 3}), "accepted");
  chain.together.clear();
  golden.add(reason({0, 2, 1, 3}));
  chain.dependences = {{3, 1}};
  EXPECT_THROW(partition::check(chain), ConfigError);
}

}  // namespace
}  // namespace spillway::layer_order
