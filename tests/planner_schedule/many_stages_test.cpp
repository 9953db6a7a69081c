// Sizes at which anything that takes stages times actions would not come back.
#include <gmock/gmock.h>

#include "action_list_building.h"
#include "spillway/planner/schedule/rank_memory.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/schedule_check.h"
#include "spillway/schedule/schedule_csv.h"
#include "support/drawn_schedule.h"
#include "support/generated_schedule.h"

namespace spillway::planner_schedule {
namespace {

constexpr std::uint32_t kMany = 100000;

Schedule many_stages_of_one_rank() {
  Schedule schedule = one_replica(1, 1, round_placement(1, kMany));
  for (std::uint32_t stage = 0; stage < kMany; ++stage)
    schedule.ranks[0].push_back(forward(stage, 0));
  for (std::uint32_t stage = kMany; stage-- > 0;) schedule.ranks[0].push_back(backward(stage, 0));
  end_with_steps(schedule);
  return schedule;
}

TEST(ManyStages, OfOneRankAreReadAndChecked) {
  const Schedule schedule =
      schedule::read_schedule_csv(schedule::to_csv(many_stages_of_one_rank()), "test");
  EXPECT_FALSE(schedule::first_fault(schedule));
  const HeldCounts factors = rank_factors(schedule)[0];
  EXPECT_EQ(factors.in_flight, 1.0);
  EXPECT_EQ(factors.weight_versions, 1.0);
}

TEST(ManyStages, OfOneRankAreReducedAndTimed) {
  const Schedule schedule =
      *with_communication(many_stages_of_one_rank(), CommunicationOptions{.data_parallel = 2});
  EXPECT_FALSE(schedule::first_fault(schedule));
  const ScheduleTiming timing = time_schedule(schedule, even_costs(schedule, 1.0, 1.0, 1.0));
  EXPECT_EQ(timing.step_seconds, 3.0 * kMany);
  EXPECT_EQ(drawing(schedule, timing, 3.0 * kMany).substr(0, 4), "r0: ");
}

// Each replica on a rank of its own, all reduced together.
TEST(ManyReplicas, OfOneStageAreCheckedAndTimed) {
  Schedule schedule;
  schedule.stages = schedule.micro_batches = 1;
  for (std::uint32_t rank = 0; rank < kMany; ++rank) {
    schedule.placement.push_back({rank});
    schedule.ranks.push_back({forward(0, 0, rank),
                              backward(0, 0, rank),
                              {ActionKind::kReduce, 0, kNoMicroBatch},
                              step(0)});
  }
  EXPECT_FALSE(schedule::first_fault(schedule));
  EXPECT_EQ(time_schedule(schedule, even_costs(schedule, 1.0, 1.0, 1.0)).step_seconds, 3.0);
}

// Waves of one micro-batch wander over thousands of ranks, of which most have nothing to do: ticks
// times ranks would be beyond all bounds here.
TEST(GreedyOrder, LooksAtRanksOnlyWhereSomethingChanged) {
  constexpr std::uint32_t kRanks = 4096;
  constexpr std::uint32_t kMicroBatches = 16;
  Schedule schedule = one_replica(kRanks, kMicroBatches, round_placement(kRanks, kRanks));
  const std::uint64_t visits = order_greedily(schedule, std::vector<std::uint32_t>(kRanks, 1));
  const std::uint64_t actions = 2 * std::uint64_t{kRanks} * kMicroBatches;
  EXPECT_LE(visits, 2 * actions + kRanks);
  end_with_steps(schedule);
  EXPECT_FALSE(schedule::first_fault(schedule));
}

TEST(WeightFilling, LooksAtRanksOnlyWhereSomethingChanged) {
  constexpr std::uint32_t kRanks = 8192;
  Schedule schedule = one_replica(kRanks, 2, round_placement(kRanks, kRanks));
  for (std::uint32_t stage = 0; stage < kRanks; ++stage)
    schedule.ranks[stage] = one_forward_one_backward(stage, 2, kRanks - stage, input_gradient);
  const std::uint64_t visits = fill_with_weight_gradients(schedule, kRanks);
  const std::uint64_t actions = 3 * std::uint64_t{kRanks} * 2;
  EXPECT_LE(visits, 2 * actions + kRanks);
  end_with_steps(schedule);
  EXPECT_FALSE(schedule::first_fault(schedule));
}

}  // namespace
}  // namespace spillway::planner_schedule
