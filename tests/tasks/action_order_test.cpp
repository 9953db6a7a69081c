#include "spillway/pipeline/tasks/action_order.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::pipeline {
namespace {

ActionOrder order_of(const char* name, std::uint32_t ranks, std::uint32_t micro_batches) {
  return ActionOrder(planner_schedule::schedule_generator_named(name).generate(
      {.ranks = ranks, .micro_batches = micro_batches}));
}

TEST(ActionOrder, PutsActionsBehindWhatTheyNeed) {
  const ActionOrder order = order_of("1f1b", 4, 8);
  EXPECT_EQ(order.last(), 2 * 4 * 8u);
  for (std::uint64_t turn = 0; turn < 8; ++turn)
    for (std::uint32_t stage = 0; stage + 1 < 4; ++stage) {
      EXPECT_LT(order.place_of(false, stage, turn)->order,
                order.place_of(false, stage + 1, turn)->order);
      EXPECT_LT(order.place_of(true, stage + 1, turn)->order,
                order.place_of(true, stage, turn)->order);
    }
}

TEST(ActionOrder, KeepsToTheListOfEachRank) {
  const ActionOrder order = order_of("interleaved", 4, 8);
  for (std::uint32_t rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(std::is_sorted(
        order.list_of(rank).begin(), order.list_of(rank).end(),
        [](const ListedAction& a, const ListedAction& b) { return a.order < b.order; }));
}

TEST(ActionOrder, KnowsTheTwoPartsOfBackward) {
  const ActionOrder whole = order_of("1f1b", 4, 8);
  EXPECT_EQ(whole.place_of(true, 0, 0)->order, whole.place_of(true, 0, 0)->order_of_rest);
  const ActionOrder parts = order_of("zb-h1", 4, 8);
  EXPECT_LT(parts.place_of(true, 0, 0)->order, parts.place_of(true, 0, 0)->order_of_rest);
}

TEST(ActionOrder, CountsMicroBatchesThroughReplicas) {
  // The second micro-batch of the program is the first one of the reverse replica.
  const ActionOrder order = order_of("gems-mast", 4, 4);
  EXPECT_EQ(order.list_of(0).front().order, order.place_of(false, 0, 0)->order);
  EXPECT_EQ(order.list_of(3).back().order, order.place_of(true, 0, 3)->order);
}

TEST(ActionOrder, HasNothingBeyondItsLists) {
  const ActionOrder order = order_of("gpipe", 2, 4);
  EXPECT_TRUE(order.place_of(false, 1, 3));
  EXPECT_FALSE(order.place_of(false, 1, 4));
}

TEST(ActionOrder, TellsHowManyMicroBatchesAreBegunAtOnce) {
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(order_of("1f1b", 4, 8).window_of(rank), 4 - rank);
    EXPECT_EQ(order_of("gpipe", 4, 8).window_of(rank), 8u);
    EXPECT_EQ(order_of("gems-master", 4, 8).window_of(rank), 1u);
  }
}

TEST(ActionOrder, RefusesListsThatWaitForOneAnother) {
  schedule::Schedule schedule =
      planner_schedule::schedule_generator_named("1f1b").generate({.ranks = 2, .micro_batches = 1});
  std::swap(schedule.ranks[1][0], schedule.ranks[1][1]);
  EXPECT_THROW(ActionOrder{schedule}, PlanError);
}

}  // namespace
}  // namespace spillway::pipeline
