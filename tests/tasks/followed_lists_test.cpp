// Ranks keep to the action lists of every schedule, in the time that the simulator finds for them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "drawn_placement.h"
#include "even_trainer.h"
#include "spillway/planner/schedule/generators.h"
#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::pipeline {
namespace {

using Contents = RankMemory::Contents;

bool has_parts(const schedule::Schedule& schedule) {
  return has_action(schedule, schedule::ActionKind::kWeightGradient);
}

/// Which actions each rank has computed, by their orders.
struct Course {
  std::vector<std::vector<std::uint64_t>> followed;
  double seconds = 0;
};

Course course_of(const schedule::Schedule& schedule, const ActionOrder& order,
                 std::uint64_t micro_batches, std::uint64_t seed) {
  const Placement placement(schedule);
  Course course;
  course.followed.resize(placement.ranks());
  transport::InProcessRanks ranks({.ranks = placement.ranks(), .seed = seed});
  ranks.run([&](transport::Transport& transport) {
    Ownership ownership(placement, StageCuts(even_cuts(schedule.stages, schedule.stages)));
    QueuedMemory memory(ranks, transport, ownership, 1);
    memory.follow(order);
    EvenTrainer trainer(memory, schedule.stages, has_parts(schedule));
    for (std::uint64_t i = 0; i < micro_batches; ++i) trainer.train_on_micro_batch();
    memory.finish();
    course.followed[transport.rank().value()] = memory.followed();
  });
  course.seconds = seconds(ranks.clock().now().time_since_epoch());
  return course;
}

/// Nobody waits for the gradient of the model's input: that is computed with those of weights.
std::vector<std::uint64_t> expected_of(const ActionOrder& order, std::uint32_t rank) {
  std::set<std::uint64_t> skipped;
  for (std::uint64_t turn = 0; turn < order.turns(); ++turn) {
    const auto place = order.place_of(true, 0, turn);
    if (place->order != place->order_of_rest) skipped.insert(place->order);
  }
  std::vector<std::uint64_t> orders;
  for (const ListedAction& action : order.list_of(rank))
    if (!skipped.contains(action.order)) orders.push_back(action.order);
  return orders;
}

/// The gradient of the model's input takes its time there, which may be later in the list.
planner_schedule::ScheduleCosts costs_of(const schedule::Schedule& schedule) {
  planner_schedule::ScheduleCosts costs = planner_schedule::even_costs(schedule, 1, 1, 1);
  if (!has_parts(schedule)) return costs;
  costs.stages.front().input_gradient_seconds = 0;
  costs.stages.front().weight_gradient_seconds = 2;
  return costs;
}

std::vector<std::uint64_t> once_each(std::vector<std::uint64_t> orders) {
  orders.erase(std::unique(orders.begin(), orders.end()), orders.end());
  return orders;
}

class FollowedLists : public ::testing::TestWithParam<planner_schedule::ScheduleGenerator> {
 protected:
  static schedule::Schedule schedule_of(std::uint32_t micro_batches) {
    return GetParam().generate({.ranks = 4, .micro_batches = micro_batches});
  }
};

TEST_P(FollowedLists, AreComputedInTheirOrderAndTime) {
  for (const std::uint32_t micro_batches : {4u, 8u, 16u}) {
    if (GetParam().name == "dualpipe-v" && micro_batches < 8)
      continue;  // It takes twice its ranks.
    const schedule::Schedule schedule = schedule_of(micro_batches);
    const ActionOrder order(schedule);
    ASSERT_EQ(order.turns(), micro_batches);
    const Course course = course_of(schedule, order, micro_batches, micro_batches);
    for (std::uint32_t rank = 0; rank < 4; ++rank)
      EXPECT_EQ(once_each(course.followed[rank]), expected_of(order, rank))
          << "rank " << rank << ", " << micro_batches << " micro-batches";
    const double simulated = time_schedule(schedule, costs_of(schedule)).step_seconds;
    // One forward and one backward as one deliver together; here the first one does before.
    if (GetParam().name == "dualpipe-v" || has_parts(schedule))
      EXPECT_LE(course.seconds, simulated) << micro_batches << " micro-batches";
    else
      EXPECT_EQ(course.seconds, simulated) << micro_batches << " micro-batches";
  }
}

TEST_P(FollowedLists, EndWithFewerAndWithMoreMicroBatches) {
  const schedule::Schedule schedule = schedule_of(8);
  const ActionOrder order(schedule);
  for (const std::uint64_t micro_batches : {1u, 5u, 11u}) {
    const Course course = course_of(schedule, order, micro_batches, micro_batches);
    std::size_t computed = 0;
    for (const auto& rank : course.followed) computed += rank.size();
    EXPECT_EQ(computed, micro_batches * schedule.stages * (has_parts(schedule) ? 3 : 2));
  }
}

INSTANTIATE_TEST_SUITE_P(Generators, FollowedLists,
                         ::testing::ValuesIn(planner_schedule::schedule_generators().begin(),
                                             planner_schedule::schedule_generators().end()),
                         [](const auto& instance) {
                           std::string name(instance.param.name);
                           for (char& letter : name)
                             if (letter == '-') letter = '_';
                           return name;
                         });

}  // namespace
}  // namespace spillway::pipeline
