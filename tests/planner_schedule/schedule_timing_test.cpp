#include "spillway/planner/schedule/schedule_timing.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/schedule_csv.h"
#include "support/generated_schedule.h"

namespace spillway::planner_schedule {
namespace {

Schedule listed(std::string_view csv) { return schedule::read_schedule_csv(csv, "test"); }

/// One micro-batch through two ranks, 1 s forward, 2 s backward, boundaries of 100 bytes.
ScheduleCosts pair_costs(const Schedule& schedule) {
  ScheduleCosts costs = even_costs(schedule, 1.0, 1.0, 1.0);
  for (StageCosts& stage : costs.stages) {
    stage.boundary = 100_B;
    stage.stash = 1000_B;
    stage.weights = 500_B;
    stage.gradients = 200_B;
    stage.optimizer_state = 300_B;
  }
  return costs;
}

TEST(TimeSchedule, CountsMessagesOnTheWay) {
  const Schedule schedule = generated("gpipe", 2, 1);
  ScheduleCosts costs = pair_costs(schedule);
  costs.peer = {.latency_seconds = 0.5, .rate = TransferRate(50.0)};  // 2.5 s a message.
  const ScheduleTiming timing = time_schedule(schedule, costs);
  EXPECT_DOUBLE_EQ(timing.step_seconds, 1 + 2.5 + 1 + 2 + 2.5 + 2);
  EXPECT_DOUBLE_EQ(timing.ranks[0].exposed_communication_seconds, 2.5);
  EXPECT_DOUBLE_EQ(timing.ranks[1].exposed_communication_seconds, 2.5);
  EXPECT_DOUBLE_EQ(timing.ranks[0].busy_seconds, 3.0);
  EXPECT_DOUBLE_EQ(timing.bubble, 1.0 - 6.0 / (2 * 11.0));
}

TEST(TimeSchedule, GivesStepsTheirTransientsWhileTheyRun) {
  Schedule schedule =
      *with_communication(generated("gpipe", 2, 1), pair_costs(generated("gpipe", 2, 1)));
  ScheduleCosts costs = pair_costs(schedule);
  const std::vector<RankTiming> without = time_schedule(schedule, costs).ranks;
  EXPECT_EQ(without[0].peak_memory, 2000_B);  // The stash, and what stays.
  costs.stages[0].update_peak = 1000_B;       // The stash is gone when they come.
  costs.stages[1].update_peak = 1100_B;
  const std::vector<RankTiming> with = time_schedule(schedule, costs).ranks;
  EXPECT_EQ(with[0].peak_memory, 2000_B);
  EXPECT_EQ(with[1].peak_memory, 2100_B);
  EXPECT_EQ(with[1].memory.back().bytes, without[1].memory.back().bytes);
}

/// Forward 1 s, backward 2 s on one rank; of each stash so many bytes leave at 10 a second.
ScheduleTiming time_with_parts(const std::string& list, std::uint64_t bytes) {
  const Schedule schedule = schedule::read_schedule_csv(list + "\n", "test");
  ScheduleCosts costs = even_costs(schedule, 1.0, 1.0, 1.0);
  costs.host.rate = TransferRate(10.0);
  for (StageCosts& stage : costs.stages) stage.swapped = Bytes(bytes);
  return time_schedule(schedule, costs);
}

// Each next forward waits for the room, and each backward for what has left.
TEST(TimeSchedule, CopiesWhatStagesSwapBesideForwardsAndBackwards) {
  const ScheduleTiming hidden = time_with_parts("0F0,0F1,0F2,0B0,0B1,0B2", 10);
  EXPECT_DOUBLE_EQ(hidden.step_seconds, 9.0);
  EXPECT_DOUBLE_EQ(hidden.ranks[0].exposed_swap_seconds, 0.0);
  EXPECT_EQ(hidden.ranks[0].host_traffic, Bytes(6 * 10));
  const ScheduleTiming shown = time_with_parts("0F0,0F1,0F2,0B0,0B1,0B2", 25);
  EXPECT_DOUBLE_EQ(shown.step_seconds, 2 * 2.5 + 1.0 + 3 * 2.5);
  EXPECT_DOUBLE_EQ(shown.ranks[0].exposed_swap_seconds, 2 * 1.5 + 3 * 0.5);
  EXPECT_DOUBLE_EQ(shown.ranks[0].busy_seconds, 9.0);
  EXPECT_DOUBLE_EQ(shown.bubble, 1.0 - 9.0 / shown.step_seconds);
}

// Both directions at once where forwards and backwards take turns with stashes in flight; with one
// in flight, one direction behind the other.
TEST(TimeSchedule, CopiesWhatStagesSwapInTheTimeThatListsLeave) {
  EXPECT_DOUBLE_EQ(time_with_parts("0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3", 25).step_seconds,
                   4 * 3.0 + 1.5 + 0.5 + 0.5);
  EXPECT_DOUBLE_EQ(time_with_parts("0F0,0B0,0F1,0B1", 15).step_seconds, 2 * 3.0);
  EXPECT_DOUBLE_EQ(time_with_parts("0F0,0B0,0F1,0B1", 25).step_seconds, 2 * 5.0);
  // Two stages of a rank: the second forward comes at once.
  EXPECT_DOUBLE_EQ(time_with_parts("0F0,1F0,1B0,0B0", 15).step_seconds, 1.5 + 1.0 + 2.0 + 2.0);
}

TEST(TimeSchedule, TakesTheSameTimeWithMessagesWrittenDown) {
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "v-half", "chimera", "gems-mast"})
    for (const double latency : {0.0, 0.3}) {
      const Schedule plain = generated(name, 4, 8);
      ScheduleCosts costs = pair_costs(plain);
      costs.peer.latency_seconds = latency;
      const Schedule complete = *with_communication(plain, costs);
      EXPECT_NEAR(time_schedule(plain, costs).step_seconds,
                  time_schedule(complete, costs).step_seconds, 1e-9)
          << name << latency;
    }
}

// A link carries one message at a time; latency does not occupy the link.
TEST(TimeSchedule, LetsMessagesOfAPairQueue) {
  const Schedule schedule = generated("gpipe", 2, 3);
  ScheduleCosts costs = pair_costs(schedule);
  costs.peer.rate = TransferRate(25.0);  // 4 s each, one made each second.
  const ScheduleTiming timing = time_schedule(schedule, costs);
  EXPECT_DOUBLE_EQ(timing.spans[1][2].start_seconds, 1 + 3 * 4);
  costs.peer = {.latency_seconds = 4.0};
  EXPECT_DOUBLE_EQ(time_schedule(schedule, costs).spans[1][2].start_seconds, 3 + 4);
}

TEST(TimeSchedule, HidesCopiesThatFitTheWindow) {
  const Schedule schedule = listed("0F0,0SWAP_OUT0,0SWAP_IN0,0B0\n1F0,1B0\n");
  ScheduleCosts costs = pair_costs(schedule);
  costs.host.rate = TransferRate(1000.0);  // 1 s each way, 3 s of window.
  ScheduleTiming timing = time_schedule(schedule, costs);
  EXPECT_DOUBLE_EQ(timing.step_seconds, 6.0);
  EXPECT_DOUBLE_EQ(timing.ranks[0].exposed_swap_seconds, 0.0);
  EXPECT_EQ(timing.ranks[0].host_traffic, 2000_B);
  costs.host.rate = TransferRate(500.0);  // 4 s for both.
  timing = time_schedule(schedule, costs);
  EXPECT_DOUBLE_EQ(timing.step_seconds, 7.0);
  EXPECT_DOUBLE_EQ(timing.ranks[0].exposed_swap_seconds, 1.0);
}

// Least of all in DualPipe, where a forward also waits for the gradient of the backward behind it.
TEST(TimeSchedule, CountsNoSwapsWhereNothingIsCopied) {
  for (const ScheduleGenerator& generator : schedule_generators())
    for (const bool has_messages : {false, true}) {
      Schedule schedule = generator.generate({.ranks = 4, .micro_batches = 8});
      if (has_messages) schedule = *with_communication(schedule);
      ScheduleCosts costs = pair_costs(schedule);
      costs.peer = {.latency_seconds = 0.5, .rate = TransferRate(1000.0)};
      const ScheduleTiming timing = time_schedule(schedule, costs);
      double exposed = 0.0;
      for (const RankTiming& rank : timing.ranks) {
        EXPECT_EQ(rank.exposed_swap_seconds, 0.0) << generator.name << has_messages;
        exposed += rank.exposed_communication_seconds;
      }
      EXPECT_GT(exposed, 0.0) << generator.name;
    }
}

TEST(TimeSchedule, WaitsForRoom) {
  const Schedule schedule = listed("0F0,0SWAP_OUT0,0F1,0SWAP_OUT1,0SWAP_IN0,0B0,0SWAP_IN1,0B1\n");
  ScheduleCosts costs = pair_costs(schedule);
  costs.host.rate = TransferRate(250.0);  // 4 s each way.
  ScheduleTiming timing = time_schedule(schedule, costs);
  EXPECT_DOUBLE_EQ(timing.spans[0][2].start_seconds, 1.0);
  EXPECT_EQ(timing.ranks[0].peak_memory, 2000_B + 500_B + 200_B);
  costs.memory = 1700_B;  // One stash beside the parameters.
  timing = time_schedule(schedule, costs);
  EXPECT_DOUBLE_EQ(timing.spans[0][2].start_seconds, 5.0);
  EXPECT_EQ(timing.ranks[0].peak_memory, 1700_B);
  EXPECT_DOUBLE_EQ(timing.ranks[0].peak_stashes, 1.0);
}

TEST(TimeSchedule, CountsMemoryOfEverythingThatARankHolds) {
  const Schedule schedule = generated("1f1b", 3, 6);
  const ScheduleCosts costs = pair_costs(schedule);
  const ScheduleTiming timing = time_schedule(schedule, costs);
  for (std::uint64_t stage = 0; stage < 3; ++stage)
    EXPECT_EQ(timing.ranks[stage].peak_memory, 500_B + 200_B + 300_B + (3 - stage) * 1000_B);
  const ScheduleTiming versions = time_schedule(generated("pipedream", 3, 6), costs);
  for (std::uint64_t stage = 0; stage < 3; ++stage)
    EXPECT_EQ(versions.ranks[stage].peak_memory,
              (3 - stage) * 500_B + 200_B + 300_B + (3 - stage) * 1000_B);
}

TEST(TimeSchedule, KeepsPartOfAStashForTheWeightGradient) {
  const Schedule schedule = listed("0F0,0I0,0F1,0W0,0I1,0W1\n");
  ScheduleCosts costs = pair_costs(schedule);
  costs.shares.after_input_gradient = 0.25;
  const RankTiming rank = time_schedule(schedule, costs).ranks[0];
  EXPECT_DOUBLE_EQ(rank.peak_stashes, 1.25);
  EXPECT_EQ(rank.peak_memory, 1250_B + 700_B);
}

TEST(TimeSchedule, RunsReductionsBesideTheBackwardOfOtherStages) {
  Schedule schedule = generated("1f1b", 2, 2);
  ScheduleCosts costs = pair_costs(schedule);
  costs.reduce = {.latency_seconds = 0.0, .rate = TransferRate(100.0)};  // 2·3/4·2 s among four.
  schedule = *with_communication(schedule, costs, CommunicationOptions{.data_parallel = 4});
  const ScheduleTiming timing = time_schedule(schedule, costs);
  EXPECT_DOUBLE_EQ(timing.step_seconds, 9.0 + 3.0);  // That of stage 0 is exposed.
  EXPECT_DOUBLE_EQ(timing.ranks[0].exposed_communication_seconds, 3.0);
}

// Backwards end at 7 and 9 s: the sum of the last stage has passed what both share when the other
// one comes to it, or keeps it waiting.
TEST(TimeSchedule, LetsSumsPassWhatTheyShareOneAfterTheOther) {
  Schedule schedule = generated("1f1b", 2, 2);
  ScheduleCosts costs = pair_costs(schedule);
  schedule = *with_communication(schedule, costs, CommunicationOptions{.data_parallel = 4});
  const auto step_with = [&](std::uint32_t ranks, double seconds) {
    const double bytes = 2.0 * 3 / 4 * static_cast<double>(costs.stages[0].gradients.count());
    costs.shared_sums = {ranks, TransferRate(bytes / seconds)};
    return time_schedule(schedule, costs).step_seconds;
  };
  EXPECT_DOUBLE_EQ(step_with(2, 1.0), 9.0 + 1.0);
  EXPECT_DOUBLE_EQ(step_with(2, 2.0), 9.0 + 2.0);
  EXPECT_DOUBLE_EQ(step_with(2, 5.0), 7.0 + 5.0 + 5.0);
  EXPECT_DOUBLE_EQ(step_with(1, 5.0), 9.0 + 5.0);
  costs.reduce = {.latency_seconds = 0.5, .rate = TransferRate(100.0)};  // 3 s, and 6 · 0.5 s.
  EXPECT_DOUBLE_EQ(step_with(2, 1.0), 9.0 + 3.0 + 3.0);
  EXPECT_DOUBLE_EQ(step_with(2, 5.0), 7.0 + 5.0 + 5.0 + 3.0);
}

TEST(TimeSchedule, EndsReceivesWhenTheirMessagesArrive) {
  const Schedule schedule = listed("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
  ScheduleCosts costs = pair_costs(schedule);
  costs.peer.latency_seconds = 0.5;
  const auto spans = time_schedule(schedule, costs).spans;
  EXPECT_DOUBLE_EQ(spans[1][0].start_seconds, 0.0);  // Posted at once,
  EXPECT_DOUBLE_EQ(spans[1][0].end_seconds, 1.5);    // F0 of the other rank and the way.
  EXPECT_DOUBLE_EQ(spans[0][1].end_seconds, 1.5);
  EXPECT_DOUBLE_EQ(spans[0][2].start_seconds, 1.0);
  EXPECT_DOUBLE_EQ(spans[0][2].end_seconds, 1.5 + 1 + 2 + 0.5);
}

TEST(TimeSchedule, EndsReceivesOfParametersWhenTheyArrive) {
  const Schedule schedule =
      *with_communication(gems(2, 1, 2), CommunicationOptions{.copy_rule = CopyRule::kSingleOwner});
  ScheduleCosts costs = pair_costs(schedule);
  costs.peer.rate = TransferRate(100.0);
  const auto spans = time_schedule(schedule, costs).spans;
  std::size_t receives = 0;
  for (std::size_t rank = 0; rank < 2; ++rank)
    for (std::size_t i = 0; i < spans[rank].size(); ++i) {
      const Action& action = schedule.ranks[rank][i];
      if (action.kind != ActionKind::kReceiveWeights) continue;
      ++receives;
      const auto& other = schedule.ranks[1 - rank];
      const Action send{ActionKind::kSendWeights, action.stage, kNoMicroBatch};
      const auto at = std::find(other.begin(), other.end(), send) - other.begin();
      const ActionSpan& sent = spans[1 - rank][static_cast<std::size_t>(at)];
      EXPECT_GE(sent.end_seconds, sent.start_seconds + 5.0);
      EXPECT_DOUBLE_EQ(spans[rank][i].end_seconds, sent.end_seconds);
    }
  EXPECT_EQ(receives, 2U);
}

// From when the last one has come, on all of its ranks.
TEST(TimeSchedule, GivesAReductionTheSameSpanOnAllItsRanks) {
  const Schedule schedule = *with_communication(gems(4, 1, 2));
  ScheduleCosts costs = pair_costs(schedule);
  costs.reduce.rate = TransferRate(100.0);  // 200 bytes among two: 2 s.
  const ScheduleTiming timing = time_schedule(schedule, costs);
  std::vector<std::vector<ActionSpan>> by_stage(4);
  for (std::size_t rank = 0; rank < 4; ++rank)
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i)
      if (schedule.ranks[rank][i].kind == ActionKind::kReduce)
        by_stage[schedule.ranks[rank][i].stage].push_back(timing.spans[rank][i]);
  for (const auto& spans : by_stage) {
    ASSERT_EQ(spans.size(), 2U);
    EXPECT_DOUBLE_EQ(spans[0].start_seconds, spans[1].start_seconds);
    for (const ActionSpan& span : spans)
      EXPECT_DOUBLE_EQ(span.end_seconds - span.start_seconds, 2.0);
  }
}

TEST(TimeSchedule, ThrowsForReductionsAndStepsWithoutSense) {
  const Schedule good = *with_communication(gems(2, 1, 2));
  const ScheduleCosts costs = even_costs(good, 1.0, 1.0, 1.0);
  const Action reduce{ActionKind::kReduce, 0, kNoMicroBatch};
  const Action step{ActionKind::kStep, 0, kNoMicroBatch};
  // Rank 0 joins twice, which does not make up for rank 1.
  Schedule bad = good;
  auto& list = bad.ranks[0];
  list.insert(std::find(list.begin(), list.end(), reduce), reduce);
  std::erase(bad.ranks[1], reduce);
  EXPECT_THROW(time_schedule(bad, costs), PlanError);
  // Rank 1 joins a sum of which it has no part.
  bad = good;
  std::erase(bad.ranks[1], step);
  EXPECT_THROW(time_schedule(bad, costs), PlanError);
  const Schedule parked = listed("0F0,0B0,0SWAP_OUT_WEIGHTS,0STEP\n");
  EXPECT_THROW(time_schedule(parked, even_costs(parked, 1.0, 1.0, 1.0)), PlanError);
}

TEST(TimeSchedule, ThrowsForListsThatStandStill) {
  const Schedule schedule = listed("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  EXPECT_THROW(time_schedule(schedule, even_costs(schedule, 1, 1, 1)), PlanError);
  const Schedule missing = listed("0F0,0SEND_F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_THROW(time_schedule(missing, even_costs(missing, 1, 1, 1)), PlanError);
}

TEST(TimeSchedule, RefusesCostsWithoutSense) {
  const Schedule schedule = generated("1f1b", 2, 2);
  const auto refuses = [&](auto change) {
    ScheduleCosts costs = even_costs(schedule, 1, 1, 1);
    change(costs);
    EXPECT_THROW(time_schedule(schedule, costs), ConfigError);
  };
  refuses([](ScheduleCosts& costs) { costs.stages.pop_back(); });
  refuses([](ScheduleCosts& costs) { costs.stages[1].forward_seconds = -1; });
  refuses([](ScheduleCosts& costs) {
    costs.stages[1].step_seconds = std::numeric_limits<double>::quiet_NaN();
  });
  refuses([](ScheduleCosts& costs) { costs.peer.rate = TransferRate(0); });
  refuses([](ScheduleCosts& costs) { costs.host.latency_seconds = -1; });
  refuses([](ScheduleCosts& costs) { costs.shares.input = 1.5; });
  refuses([](ScheduleCosts& costs) { costs.shared_sums.ranks = 0; });
  refuses([](ScheduleCosts& costs) { costs.shared_sums.rate = TransferRate(-1); });
}

}  // namespace
}  // namespace spillway::planner_schedule
