#include "spillway/schedule/execution_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "spillway/base/error.h"
#include "spillway/schedule/messages.h"
#include "support/generated_schedule.h"

// After the header of the generators.
#include "spillway/planner/schedule/schedule_passes.h"
#include "support/golden_part.h"

namespace spillway::schedule {
namespace {

using planner_schedule::CommunicationOptions;
using planner_schedule::generated;
using planner_schedule::schedule_generators;
using planner_schedule::ScheduleGenerator;
using planner_schedule::with_communication;
using ::testing::ElementsAre;

/// A layer more than stages, of one forward operator each but for the last one, which has two; an
/// operator of no layer in front of the third. The first stage has two layers.
ExecutionPlan plan_of(Schedule action_lists) {
  ExecutionPlan plan;
  plan.layers = action_lists.stages + 1;
  ProfiledStep& step = plan.step.emplace();
  step.operators = 3 * plan.layers;
  step.operator_hash = 42;
  for (std::uint32_t layer = 0; layer < plan.layers; ++layer) {
    if (layer == 2) step.layer_of_operator.push_back(kNoLayer);
    step.layer_of_operator.push_back(layer);
  }
  step.layer_of_operator.push_back(plan.layers - 1);
  plan.stages.push_back({0, 1, {1}, 8_MiB, 2_MiB});
  for (std::uint32_t stage = 1; stage < action_lists.stages; ++stage)
    plan.stages.push_back({stage + 1, stage + 1, {}, 4_MiB, Bytes(0)});
  plan.actions = std::move(action_lists);
  return plan;
}

ExecutionPlan two_stages() {
  return plan_of(
      *with_communication(generated("1f1b", 2, 3), CommunicationOptions{.data_parallel = 2}));
}

std::string fault_after(void (*change)(ExecutionPlan&)) {
  ExecutionPlan plan = two_stages();
  change(plan);
  return plan_fault(plan).value_or("none");
}

TEST(RankSchedule, SaysWhichOperatorsOfTheStepAreItsForward) {
  const ExecutionPlan plan = two_stages();
  ASSERT_EQ(plan_fault(plan), std::nullopt);
  const RankSchedule first = rank_schedule(plan, 0);
  ASSERT_EQ(first.stages.size(), 1U);
  EXPECT_EQ(first.stages[0].stage, 0U);
  EXPECT_THAT(first.stages[0].operators, ElementsAre(OperatorRange{0, 1}));
  EXPECT_THAT(first.stages[0].recomputed, ElementsAre(OperatorRange{1, 1}));
  EXPECT_EQ(first.stages[0].stash, 8_MiB);
  EXPECT_EQ(first.stages[0].swapped, 2_MiB);
  const RankSchedule second = rank_schedule(plan, 1);
  ASSERT_EQ(second.stages.size(), 1U);
  EXPECT_THAT(second.stages[0].operators, ElementsAre(OperatorRange{3, 4}));  // 2 is no forward.
  EXPECT_THAT(second.stages[0].recomputed, ElementsAre());
}

TEST(RankSchedule, CountsPlacesOfTheOrderOfThePlan) {
  ExecutionPlan plan = two_stages();
  plan.order = {0, 2, 1};
  ASSERT_EQ(plan_fault(plan), std::nullopt);
  EXPECT_THAT(operators_of(plan, 0), ElementsAre(OperatorRange{0, 0}, OperatorRange{3, 4}));
  EXPECT_THAT(recomputed_operators_of(plan, 0), ElementsAre(OperatorRange{3, 4}));
  EXPECT_THAT(operators_of(plan, 1), ElementsAre(OperatorRange{1, 1}));
}

// Whatever the schedule: each rank has its action list, and what one sends another one receives.
TEST(RankSchedule, OfAllRanksTogetherAreTheSchedule) {
  std::size_t messages = 0;
  for (const ScheduleGenerator& generator : schedule_generators()) {
    SCOPED_TRACE(generator.name);
    const ExecutionPlan plan =
        plan_of(*with_communication(generator.generate({.ranks = 4, .micro_batches = 8}),
                                    CommunicationOptions{.data_parallel = 2}));
    ASSERT_EQ(plan_fault(plan), std::nullopt);
    ASSERT_EQ(plan.rank_count(), 8U);
    // By sender and receiver: what is sent less what is received.
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::multiset<Action>> sent;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::multiset<Action>> received;
    std::vector<std::vector<bool>> has_forward(plan.actions.replica_count());
    for (auto& stages : has_forward) stages.resize(plan.actions.stages);
    for (std::uint32_t rank = 0; rank < plan.rank_count(); ++rank) {
      const RankSchedule view = rank_schedule(plan, rank);
      EXPECT_EQ(view.rank, rank);
      EXPECT_EQ(view.pipeline, rank / 4);
      std::vector<Action> actions;
      for (const RankAction& each : view.actions) {
        actions.push_back(each.action);
        EXPECT_EQ(each.peer.has_value(), is_send(each.action.kind) || is_receive(each.action.kind));
        if (!each.peer) continue;
        EXPECT_EQ(*each.peer / 4, view.pipeline);
        if (is_send(each.action.kind))
          sent[{rank, *each.peer}].insert(match_of(plan.actions, each.action));
        else
          received[{*each.peer, rank}].insert(each.action);
      }
      EXPECT_EQ(actions, plan.actions.ranks[rank % 4]);
      if (view.pipeline == 0)
        for (const RankStage& stage : view.stages)
          for (const std::uint32_t replica : stage.replicas) {
            EXPECT_FALSE(has_forward[replica][stage.stage]);
            has_forward[replica][stage.stage] = true;
          }
    }
    EXPECT_EQ(sent, received);
    for (const auto& [ends, actions] : sent) messages += actions.size();
    for (const auto& stages : has_forward)
      EXPECT_TRUE(
          std::all_of(stages.begin(), stages.end(), [](bool is_there) { return is_there; }));
  }
  EXPECT_GT(messages, 1000U);
}

TEST(RankSchedule, NamesAllRanksThatSumTheGradientsOfAStage) {
  const ExecutionPlan plan = plan_of(
      *with_communication(generated("gems-mast", 2, 2), CommunicationOptions{.data_parallel = 2}));
  const RankSchedule view = rank_schedule(plan, 3);
  ASSERT_EQ(view.stages.size(), 2U);
  EXPECT_THAT(view.stages[0].reducers, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(view.stages[0].replicas, ElementsAre(1));
  EXPECT_THAT(view.stages[1].replicas, ElementsAre(0));
  const ExecutionPlan one = two_stages();
  EXPECT_THAT(rank_schedule(one, 1).stages[0].reducers, ElementsAre(1, 3));
  const ExecutionPlan owned = plan_of(*with_communication(
      generated("gems-mast", 2, 2),
      CommunicationOptions{.copy_rule = planner_schedule::CopyRule::kSingleOwner}));
  EXPECT_THAT(rank_schedule(owned, 1).stages[0].reducers, ElementsAre(0)) << "its owner";
}

TEST(RankSchedule, IsRefusedForARankOrOperatorsThatAreNotThere) {
  ExecutionPlan plan = two_stages();
  try {
    rank_schedule(plan, 4);
    FAIL();
  } catch (const PlanError& error) {
    EXPECT_STREQ(error.what(), "there is no rank 4 in a plan of 4 ranks");
  }
  plan.step.reset();
  EXPECT_EQ(plan_fault(plan), std::nullopt) << "it may be checked and simulated all the same";
  EXPECT_THROW(rank_schedule(plan, 0), PlanError);
}

TEST(PlanFault, NamesStagesThatDoNotCoverTheModelOnce) {
  EXPECT_EQ(fault_after([](ExecutionPlan& plan) { plan.stages[1].first = 1; }),
            "stage 1 begins with layer 1, and the one before ends so that 2 comes next");
  EXPECT_EQ(fault_after([](ExecutionPlan& plan) { plan.layers = 4; }),
            "its stages end before layer 3, and its model has 4 layers");
  EXPECT_EQ(fault_after([](ExecutionPlan& plan) {
              plan.order = {0, 1, 1};
            }),
            "its order names layer 1 twice");
  EXPECT_EQ(fault_after([](ExecutionPlan& plan) {
              plan.stages.back().last = 1;
              plan.stages.push_back({2, 2, {}, 4_MiB, Bytes(0)});
              plan.stages[0].last = 0;
              plan.stages[0].recomputed.clear();
              plan.stages[1].first = 1;
            }),
            "it has 3 stages, and its actions are of 2");
}

TEST(PlanFault, NamesLayersThatAStageRecomputesAndDoesNotHave) {
  EXPECT_EQ(fault_after([](ExecutionPlan& plan) { plan.stages[1].recomputed = {1}; }),
            "stage 1 recomputes layer 1, which is none of its layers 2 to 2");
}

TEST(PlanFault, NamesOperatorsThatDoNotCoverTheLayersInTheirOrder) {
  EXPECT_EQ(fault_after([](ExecutionPlan& plan) {
              plan.step->layer_of_operator = {0, 1, kNoLayer};
            }),
            "layer 2 has no operator in its step, and its model has 3 layers");
  EXPECT_EQ(fault_after([](ExecutionPlan& plan) {
              plan.step->layer_of_operator = {0, 2, 1};
            }),
            "operator 1 of its step is of layer 2, where one of layer 1 comes next");
  EXPECT_EQ(fault_after([](ExecutionPlan& plan) {
              plan.step->layer_of_operator = {0, 1, 0, 2};
            }),
            "operator 2 of its step is of layer 0, where one of layer 2 comes next");
  EXPECT_EQ(fault_after([](ExecutionPlan& plan) { plan.step->operators = 4; }),
            "it names the layers of 5 operators, and its step has 4");
}

TEST(PlanFault, NamesTheFirstActionThatCannotBeDone) {
  GoldenPart golden;
  golden.add(fault_after(
      [](ExecutionPlan& plan) { std::swap(plan.actions.ranks[1][0], plan.actions.ranks[1][1]); }));
}

}  // namespace
}  // namespace spillway::schedule
