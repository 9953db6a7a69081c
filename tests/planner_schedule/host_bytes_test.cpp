#include "spillway/planner/schedule/rank_memory.h"

#include <gmock/gmock.h>

#include "spillway/schedule/schedule_csv.h"

namespace spillway::planner_schedule {
namespace {

using ::testing::ElementsAre;

std::vector<StageCosts> stages_of(const Schedule& schedule) {
  StageCosts stage;
  stage.stash = 10_B;
  stage.swapped = 3_B;
  stage.weights = 100_B;
  return std::vector<StageCosts>(schedule.stages, stage);
}

TEST(HostBytes, HoldPartsAndStashesAtTheirWorstMomentTogether) {
  const Schedule schedule =
      schedule::read_schedule_csv("0F0,0SWAP_OUT0,0F1,0SWAP_IN0,0B0,0F2,0B1,0B2\n", "test");
  EXPECT_THAT(host_bytes(schedule, stages_of(schedule)), ElementsAre(10_B + 2 * 3_B));
}

// A copy that leaves for good was counted by the simulation, and was not by plans.
TEST(HostBytes, HoldWeightsThatComeInAgain) {
  const Schedule schedule = schedule::read_schedule_csv(
      "0SWAP_IN_WEIGHTS,0F0,0SWAP_OUT_WEIGHTS,0SWAP_IN_WEIGHTS,0B0\n1F0,1B0,1SWAP_OUT_WEIGHTS\n",
      "test");
  EXPECT_THAT(weights_on_host(schedule, stages_of(schedule)), ElementsAre(100_B, 0_B));
  EXPECT_THAT(stashes_on_host(schedule, stages_of(schedule)), ElementsAre(3_B, 3_B));
  EXPECT_THAT(host_bytes(schedule, stages_of(schedule)), ElementsAre(103_B, 3_B));
}

}  // namespace
}  // namespace spillway::planner_schedule
