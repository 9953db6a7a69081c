#include "spillway/planner/schedule/rank_memory.h"

#include <gmock/gmock.h>

#include "support/generated_schedule.h"

namespace spillway::planner_schedule {
namespace {

// With less room than a rank needs, the action that takes it is named.
TEST(MemoryFault, NamesTheFirstActionOverItsRoom) {
  const Schedule schedule = generated("1f1b", 4, 8);
  ScheduleCosts costs;
  costs.stages.resize(4);
  for (StageCosts& stage : costs.stages) {
    stage.stash = 1_GiB;
    stage.weights = 2_GiB;
    stage.gradients = 2_GiB;
    stage.optimizer_state = 4_GiB;
  }
  std::vector<Bytes> room{12_GiB, 11_GiB, 10_GiB, 9_GiB};
  EXPECT_FALSE(memory_fault(schedule, costs, room));
  room[0] = 11_GiB;
  const auto fault = memory_fault(schedule, costs, room);
  ASSERT_TRUE(fault);
  EXPECT_EQ(schedule::to_string(*fault),
            "rank 0, action 3 (0F3): it is the first to need 12.0 GiB, the rank has 11.0 GiB");
}

}  // namespace
}  // namespace spillway::planner_schedule
