#include "spillway/planner/schedule/memory_check.h"

#include <gmock/gmock.h>

#include "spillway/base/error.h"
#include "support/generated_schedule.h"

namespace spillway::planner {
namespace {

std::string fault_in(const Schedule& schedule, const ScheduleLimits& limits) {
  const auto fault = memory_fault(schedule, limits);
  return fault ? to_string(*fault) : "none";
}

// With one slot more than a rank has, the action that takes it is named.
TEST(MemoryFault, NamesTheFirstActionOverALimit) {
  const Schedule schedule = generated("1f1b", 4, 8);
  EXPECT_EQ(fault_in(schedule, {.in_flight = 4.0}), "none");
  EXPECT_EQ(fault_in(schedule, {.in_flight = 3.0}),
            "rank 0, action 3 (0F3): it is the first to hold 4 micro-batches, 3 are allowed");
  ScheduleLimits limits;
  limits.stages.resize(4);
  for (StageCosts& stage : limits.stages) {
    stage.stash = 1_GiB;
    stage.weights = 2_GiB;
    stage.gradients = 2_GiB;
    stage.optimizer_state = 4_GiB;
  }
  limits.memory = {12_GiB};
  EXPECT_EQ(fault_in(schedule, limits), "none");
  limits.memory = {11_GiB, 11_GiB, 11_GiB, 11_GiB};
  EXPECT_EQ(fault_in(schedule, limits),
            "rank 0, action 3 (0F3): it is the first to need 12.0 GiB, the rank has 11.0 GiB");
  limits.memory = {11_GiB, 11_GiB};
  EXPECT_THROW(memory_fault(schedule, limits), ConfigError);
}

}  // namespace
}  // namespace spillway::planner
