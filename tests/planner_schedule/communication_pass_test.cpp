#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/schedule_check.h"
#include "support/generated_schedule.h"
#include "support/golden_part.h"

namespace spillway::planner_schedule {
namespace {

std::string fault_in(const Schedule& schedule) {
  const auto fault = schedule::first_fault(schedule);
  return fault ? schedule::to_string(*fault) : "none";
}

std::size_t count_of(const Schedule& schedule, ActionKind kind) {
  std::size_t count = 0;
  for (const auto& actions : schedule.ranks)
    count += static_cast<std::size_t>(std::count_if(
        actions.begin(), actions.end(), [&](const Action& action) { return action.kind == kind; }));
  return count;
}

// Whatever the times: one order of everything has no cycle.
TEST(WithCommunication, NeverDeadlocksUnderAnyCosts) {
  std::uint32_t seed = 3;
  const auto random = [&] {
    seed = seed * 1664525U + 1013904223U;
    return static_cast<double>(seed >> 20U) / 4096.0;
  };
  for (const ScheduleGenerator& generator : schedule_generators())
    for (int i = 0; i < 20; ++i) {
      Schedule plain = generator.generate({.ranks = 4, .micro_batches = 8});
      plain.untrained_stages = static_cast<std::uint32_t>(i % 5 < 4 ? 0 : 1 + i / 5);
      ScheduleCosts costs = even_costs(plain, 0.0, 0.0, 0.0);
      for (StageCosts& stage : costs.stages) {
        stage.forward_seconds = i % 4 == 0 ? 0.0 : random();
        stage.input_gradient_seconds = random();
        stage.weight_gradient_seconds = random();
      }
      costs.peer.latency_seconds = random();
      const std::uint32_t pipelines = 1 + i % 2;
      const CommunicationOptions options{.data_parallel = pipelines, .reduces_at_end = i % 3 == 0};
      EXPECT_EQ(fault_in(*with_communication(plain, costs, options)), "none") << generator.name;
    }
}

TEST(WithCommunication, SendsEachBoundaryOnceEachWay) {
  const Schedule schedule = *with_communication(generated("1f1b", 4, 6));
  for (const ActionKind kind : {ActionKind::kSendForward, ActionKind::kReceiveForward,
                                ActionKind::kSendBackward, ActionKind::kReceiveBackward})
    EXPECT_EQ(count_of(schedule, kind), 3U * 6U);
  // The turn of a V stays on its rank.
  EXPECT_EQ(count_of(*with_communication(generated("zb-v", 4, 6)), ActionKind::kSendForward),
            6U * 6U);
  EXPECT_THROW(with_communication(schedule), PlanError);
}

TEST(WithCommunication, SendsNoGradientToStagesThatAreNotTrained) {
  Schedule plain = generated("1f1b", 4, 6);
  plain.untrained_stages = 2;
  const Schedule schedule = *with_communication(plain);
  EXPECT_EQ(count_of(schedule, ActionKind::kSendForward), 3U * 6U);
  EXPECT_EQ(count_of(schedule, ActionKind::kSendBackward), 6U);
  EXPECT_EQ(count_of(schedule, ActionKind::kReceiveBackward), 6U);
  EXPECT_EQ(fault_in(schedule), "none");
  for (const Action& action : schedule.ranks[1])
    EXPECT_NE(action.kind, ActionKind::kReceiveBackward) << action;
  // The first two ranks wait for nobody behind them, with messages and without.
  for (const Schedule& each : {schedule, plain}) {
    ScheduleCosts costs = even_costs(each, 1.0, 1.0, 0.0);
    costs.stages[0].input_gradient_seconds = costs.stages[1].input_gradient_seconds = 0.0;
    const ScheduleTiming timing = time_schedule(each, costs);
    EXPECT_DOUBLE_EQ(timing.ranks[0].last_end_seconds, 6.0);
    EXPECT_DOUBLE_EQ(timing.ranks[1].last_end_seconds, 7.0);
  }
}

TEST(WithCommunication, ReducesWhatHasSeveralCopies) {
  EXPECT_EQ(count_of(*with_communication(generated("1f1b", 4, 4)), ActionKind::kReduce), 0U);
  EXPECT_EQ(count_of(*with_communication(generated("1f1b", 4, 4),
                                         CommunicationOptions{.data_parallel = 2}),
                     ActionKind::kReduce),
            4U);
  // Both copies of four stages; of three stages the middle one is added on its rank.
  EXPECT_EQ(count_of(*with_communication(generated("gems-mast", 4, 2)), ActionKind::kReduce), 8U);
  EXPECT_EQ(count_of(*with_communication(generated("gems-mast", 3, 2)), ActionKind::kReduce), 4U);
  // Without a flush, before each step.
  const Schedule schedule =
      *with_communication(generated("pipedream", 3, 5), CommunicationOptions{.data_parallel = 2});
  EXPECT_EQ(count_of(schedule, ActionKind::kReduce), 15U);
  EXPECT_EQ(fault_in(schedule), "none");
}

// The last backward passes the last stage first: with cheap reductions only that of stage 0 stays
// exposed.
TEST(WithCommunication, OverlapsThePairReductionsOfGems) {
  for (const std::uint32_t replicas : {2U, 3U, 4U}) {
    const Schedule plain = gems(6, 1, replicas);
    ScheduleCosts costs = even_costs(plain, 1.0, 1.0, 1.0);
    for (StageCosts& stage : costs.stages) stage.gradients = 100_B;
    costs.reduce.rate = TransferRate(100.0);  // 1 s for a pair, half of a backward.
    const double end = time_schedule(plain, costs).step_seconds;
    const Schedule overlapped = *with_communication(plain, costs);
    EXPECT_NEAR(time_schedule(overlapped, costs).step_seconds, end + 1.0, 1e-9) << replicas;
    const Schedule at_end =
        *with_communication(plain, costs, CommunicationOptions{.reduces_at_end = true});
    EXPECT_GT(time_schedule(at_end, costs).step_seconds, end + 1.5) << replicas;
  }
}

TEST(WithCommunication, LetsASingleOwnerLendItsWeights) {
  for (const std::uint32_t stages : {2U, 3U, 4U, 7U})
    for (const std::uint32_t replicas : {2U, 3U, 4U})
      for (const std::uint32_t pipelines : {1U, 2U}) {
        const Schedule plain = gems(stages, 2, replicas);
        const Schedule owned = *with_communication(
            plain,
            CommunicationOptions{.data_parallel = pipelines, .copy_rule = CopyRule::kSingleOwner});
        EXPECT_EQ(fault_in(owned), "none") << stages << " " << replicas;
        const std::size_t lent = stages - stages % 2;
        EXPECT_EQ(count_of(owned, ActionKind::kSendWeights), lent);
        EXPECT_EQ(count_of(owned, ActionKind::kReceiveGradients), lent);
        EXPECT_EQ(count_of(owned, ActionKind::kStep), stages);
        EXPECT_EQ(count_of(owned, ActionKind::kReduce), pipelines > 1 ? stages : 0U);
        // Nothing of it is in the way where it costs nothing.
        const ScheduleCosts costs = even_costs(plain, 1.0, 1.0, 1.0);
        EXPECT_NEAR(time_schedule(owned, costs).step_seconds,
                    time_schedule(plain, costs).step_seconds, 1e-9);
      }
}

TEST(WithCommunication, HalvesOptimizerStatesWithASingleOwner) {
  const Schedule plain = gems(4, 1, 2);
  ScheduleCosts costs = even_costs(plain, 1.0, 1.0, 1.0);
  for (StageCosts& stage : costs.stages) stage.optimizer_state = 1000_B;
  const auto peak = [&](CopyRule rule) {
    const Schedule schedule =
        *with_communication(plain, costs, CommunicationOptions{.copy_rule = rule});
    return time_schedule(schedule, costs).ranks[1].peak_memory;
  };
  EXPECT_EQ(peak(CopyRule::kReduced), 2000_B);
  EXPECT_EQ(peak(CopyRule::kSingleOwner), 1000_B);
}

// The second copy of Chimera is in use from the begin on, before its owner could lend it.
TEST(WithCommunication, LetsASingleOwnerLendWhereItCan) {
  std::set<std::string_view> lent;
  for (const ScheduleGenerator& generator : schedule_generators()) {
    const Schedule plain = generator.generate({.ranks = 4, .micro_batches = 8});
    const OrRefusal<Schedule> owned =
        with_communication(plain, CommunicationOptions{.copy_rule = CopyRule::kSingleOwner});
    if (!owned) continue;
    EXPECT_EQ(fault_in(*owned), "none") << generator.name;
    lent.insert(generator.name);
  }
  EXPECT_EQ(lent, (std::set<std::string_view>{"gems-mast", "gems-master"}));
}

TEST(WithCommunication, RefusesWhatCannotBe) {
  GoldenPart golden;
  const CommunicationOptions owned{.copy_rule = CopyRule::kSingleOwner};
  EXPECT_EQ(with_communication(generated("1f1b", 2, 2), owned).refusal().sentence,
            "1f1b: no stage has two copies, of which one could own");
  golden.add(with_communication(generated("pipedream", 2, 2), owned).refusal().sentence);
  golden.add(with_communication(generated("chimera", 4, 4), owned).refusal().sentence);
  EXPECT_THROW(
      with_communication(generated("1f1b", 2, 2), CommunicationOptions{.data_parallel = 0}),
      ConfigError);
}

}  // namespace
}  // namespace spillway::planner_schedule
