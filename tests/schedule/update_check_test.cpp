#include <gmock/gmock.h>

#include <algorithm>

#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/schedule_check.h"
#include "spillway/schedule/schedule_csv.h"
#include "support/generated_schedule.h"
#include "support/golden_part.h"

namespace spillway::schedule {
namespace {

using planner_schedule::CommunicationOptions;
using planner_schedule::CopyRule;
using planner_schedule::generated;
using planner_schedule::with_communication;

std::string fault_in(const Schedule& schedule) {
  const auto fault = first_fault(schedule);
  return fault ? to_string(*fault) : "none";
}

std::string fault_in(std::string_view csv) { return fault_in(read_schedule_csv(csv, "test")); }

/// Without its actions of one kind, of all stages or of one.
void erase(std::vector<Action>& list, ActionKind kind, std::uint32_t stage) {
  std::erase_if(list, [&](const Action& a) { return a.kind == kind && a.stage == stage; });
}

Schedule two_copies() { return *with_communication(generated("gems-mast", 2, 2)); }

Schedule single_owner() {
  return *with_communication(generated("gems-mast", 2, 2),
                             CommunicationOptions{.copy_rule = CopyRule::kSingleOwner});
}

constexpr const char* kMissing =
    "0STEP): it is missing (only a copy that sends its gradients and receives weights does "
    "without)";
constexpr const char* kNotSummed =
    "STEP): the gradients of all copies of its stage are not summed before";

// Its gradients would be lost, and its weights stay behind.
TEST(FirstFault, NamesACopyThatIsNeverStepped) {
  GoldenPart golden;
  Schedule schedule = two_copies();
  erase(schedule.ranks[1], ActionKind::kReduce, 0);
  erase(schedule.ranks[1], ActionKind::kStep, 0);
  golden.add(fault_in(schedule));
  EXPECT_EQ(fault_in("0F0,0B0,0STEP\n1F0,1B0\n"),
            "rank 1, action 2 (1STEP): it is missing (only a copy that sends its gradients and "
            "receives weights does without)");
}

TEST(FirstFault, NamesCopiesThatAreSteppedWithoutASum) {
  GoldenPart golden;
  Schedule schedule = two_copies();
  for (auto& list : schedule.ranks)
    for (const std::uint32_t stage : {0U, 1U}) erase(list, ActionKind::kReduce, stage);
  golden.add(fault_in(schedule));
  schedule = two_copies();
  for (auto& list : schedule.ranks) erase(list, ActionKind::kReduce, 1);
  golden.add(fault_in(schedule));
  golden.add(fault_in("#spillway-schedule 1,data_parallel=4\n0F0,0B0,0STEP\n"));
  EXPECT_EQ(fault_in("#spillway-schedule 1,data_parallel=4\n0F0,0B0,0REDUCE_GRAD,0STEP\n"), "none");
}

TEST(FirstFault, NamesStepsAndSumsThatComeTwice) {
  EXPECT_EQ(fault_in("0F0,0B0,0STEP,0STEP\n"), "rank 0, action 3 (0STEP): it comes a second time");
  EXPECT_EQ(fault_in("0F0,0B0,0STEP0,0F1,0B1,0STEP0\n"),
            "rank 0, action 5 (0STEP0): it comes a second time");
  EXPECT_EQ(fault_in("0F0,0B0,0STEP0,0F1,0B1,0STEP1\n"), "none");
  EXPECT_EQ(fault_in("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD,0STEP\n"),
            "rank 0, action 3 (0REDUCE_GRAD): it comes a second time");
  EXPECT_EQ(fault_in("#spillway-schedule 1,data_parallel=2\n"
                     "0F0,0B0,0REDUCE_GRAD,0STEP0,0F1,0B1,0STEP1\n"),
            "rank 0, action 6 (0STEP1): the gradients of all copies of its stage are not summed "
            "before");
}

TEST(FirstFault, NamesWhatASingleOwnerMisses) {
  GoldenPart golden;
  EXPECT_EQ(fault_in(single_owner()), "none");
  // Stage 0 is owned by rank 0 and used by rank 1, too.
  Schedule schedule = single_owner();
  erase(schedule.ranks[0], ActionKind::kReceiveGradients, 0);
  erase(schedule.ranks[1], ActionKind::kSendGradients, 0);
  golden.add(fault_in(schedule));
  schedule = single_owner();
  erase(schedule.ranks[0], ActionKind::kSendWeights, 0);
  erase(schedule.ranks[1], ActionKind::kReceiveWeights, 0);
  golden.add(fault_in(schedule));
}

// The owner would step with its own gradients alone.
TEST(FirstFault, NamesAStepBeforeTheGradientsOfTheOtherCopy) {
  GoldenPart golden;
  Schedule schedule = single_owner();
  auto& list = schedule.ranks[0];
  const Action step{ActionKind::kStep, 0, kNoMicroBatch};
  std::erase(list, step);
  const auto receive = std::find_if(list.begin(), list.end(), [](const Action& action) {
    return action.kind == ActionKind::kReceiveGradients;
  });
  ASSERT_NE(receive, list.end());
  list.insert(receive, step);
  golden.add(fault_in(schedule));
}

// Action lists of others may leave steps, and with them sums, to who runs them.
TEST(FirstFault, LetsListsWithoutAnyStepPass) {
  Schedule schedule = two_copies();
  for (auto& list : schedule.ranks)
    std::erase_if(list, [](const Action& action) { return action.kind == ActionKind::kStep; });
  EXPECT_EQ(fault_in(schedule), "none");
}

}  // namespace
}  // namespace spillway::schedule
