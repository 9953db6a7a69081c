#include "spillway/planner/schedule/rank_memory.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/schedule_csv.h"
#include "support/generated_schedule.h"

namespace spillway::planner_schedule {
namespace {

TEST(RankFactors, PipeDreamHoldsAVersionPerMicroBatchInFlight) {
  const auto factors = rank_factors(generated("pipedream", 4, 16));
  for (std::uint32_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(factors[stage].in_flight, 4 - stage);
    EXPECT_EQ(factors[stage].weight_versions, 4 - stage);
  }
}

TEST(RankFactors, PipeDream2BWHoldsTwoVersions) {
  const auto factors = rank_factors(generated("pipedream-2bw", 4, 16));
  for (std::uint32_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(factors[stage].in_flight, 4 - stage);
    EXPECT_EQ(factors[stage].weight_versions, 2.0);
  }
}

TEST(RankFactors, SynchronousSchedulesHoldOneVersion) {
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min"})
    for (const HeldCounts& factors : rank_factors(generated(name, 4, 8)))
      EXPECT_EQ(factors.weight_versions, 1.0) << name;
}

// What is kept between the halves of a backward counts with its share.
TEST(RankFactors, WeightGradientsThatKeepLessCountLess) {
  const Schedule schedule = generated("zb-h2", 4, 16);
  const StashShares half{.after_input_gradient = 0.5};
  const auto all = rank_factors(schedule);
  const auto less = rank_factors(schedule, half);
  for (std::uint32_t stage = 0; stage < 4; ++stage) EXPECT_EQ(all[stage].in_flight, 7.0);
  // Stage s begins 7 - 2s micro-batches ahead, the others of the seven wait for weight gradients.
  EXPECT_EQ(less[0].in_flight, 7.0);
  EXPECT_EQ(less[3].in_flight, 1.0 + 6 * 0.5);
}

// One rank in chunks of 1 / 2p of the model, where a closed form had said 4 and less.
TEST(RankFactors, CountsTheChunksOfVHalfOnTheFirstRank) {
  EXPECT_EQ(2 * rank_factors(generated("v-half", 4, 4))[0].in_flight, 5.0);
  EXPECT_EQ(2 * rank_factors(generated("v-half", 4, 8))[0].in_flight, 6.0);
}

// Weights that are on the host, or still with their owner, are not held.
TEST(RankFactors, CountWeightsWhileTheyAreThere) {
  const Schedule in_turn = schedule::read_schedule_csv(
      "0F0,0SWAP_OUT_WEIGHTS,1SWAP_IN_WEIGHTS,1F0,1B0,1SWAP_OUT_WEIGHTS,0SWAP_IN_WEIGHTS,0B0\n",
      "test");
  EXPECT_EQ(rank_factors(in_turn)[0].weight_versions, 0.5);  // One stage of the rank's two.
  const Schedule lent = schedule::read_schedule_csv(
      "0F0,0B0,r1:1F0,r1:1B0\n1F0,1SWAP_OUT_WEIGHTS,0RECV_WEIGHTS,r1:0F0,r1:0B0,"
      "0SWAP_OUT_WEIGHTS,1SWAP_IN_WEIGHTS,1B0\n",
      "test");
  EXPECT_EQ(rank_factors(lent)[0].weight_versions, 2.0);
  EXPECT_EQ(rank_factors(lent)[1].weight_versions, 1.0);
}

// The simulator, to which copies take no time here, must come to the same peak.
TEST(RankFactors, CountWeightsOfGemsAsTheSimulatorDoes) {
  const Schedule plain = gems(4, 2, 4);
  const Schedule owned =
      *with_communication(plain, CommunicationOptions{.copy_rule = CopyRule::kSingleOwner});
  for (const Schedule& schedule :
       {*with_communication(plain), *with_parked_weights(*with_communication(plain)), owned}) {
    ScheduleCosts costs = even_costs(schedule, 1.0, 1.0, 1.0);
    for (StageCosts& stage : costs.stages) stage.weights = 400_B;
    const ScheduleTiming timing = time_schedule(schedule, costs);
    const auto factors = rank_factors(schedule);
    for (std::size_t rank = 0; rank < 4; ++rank)
      EXPECT_EQ(factors[rank].weight_versions * 400,
                static_cast<double>(timing.ranks[rank].peak_memory.count()));
  }
}

TEST(StageFactors, GiveStagesOfOneRankWhatItHoldsInTheMean) {
  const Schedule schedule =
      generated("interleaved", {.ranks = 2, .micro_batches = 4, .stages_per_rank = 2});
  const auto factors = stage_factors(schedule);
  const auto ranks = rank_factors(schedule);
  ASSERT_EQ(factors.size(), 4U);
  for (std::uint32_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(factors[stage].in_flight, ranks[stage % 2].in_flight);
    EXPECT_EQ(factors[stage].weight_versions, 1.0);
    EXPECT_EQ(factors[stage].state_copies, 1.0);
  }
}

TEST(StageFactors, CountAllCopies) {
  for (const HeldCounts& each : stage_factors(generated("gems-mast", 4, 4))) {
    EXPECT_EQ(each.in_flight, 2.0);
    EXPECT_EQ(each.weight_versions, 2.0);
    EXPECT_EQ(each.state_copies, 2.0);
  }
}

// PipeOffload (arXiv 2503.01328): memory of other schedules relative to 1F1B.
TEST(StashPeaks, HaveThePublishedRatiosToOneForwardOneBackward) {
  struct Row {
    const char* name;
    double ratio;
  };
  constexpr std::uint32_t kRanks = 64;
  for (const Row& row : {Row{"zb-h1", 1}, Row{"zb-h2", 2}, Row{"zb-v", 1}, Row{"v-half", 0.5},
                         Row{"v-min", 1.0 / 3}}) {
    const Schedule schedule = generated(row.name, kRanks, 2 * kRanks);
    double worst = 0.0;
    for (const HeldCounts& factors : rank_factors(schedule))
      worst = std::max(worst, factors.in_flight);
    EXPECT_NEAR(worst / kRanks, row.ratio, 0.05 * row.ratio) << row.name;
  }
}

TEST(RankFactors, RefuseListsWithoutSense) {
  Schedule schedule = generated("1f1b", 2, 2);
  std::swap(schedule.ranks[1][0], schedule.ranks[1][1]);
  EXPECT_THROW(rank_factors(schedule), PlanError);
}

}  // namespace
}  // namespace spillway::planner_schedule
