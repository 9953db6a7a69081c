#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/rank_memory.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/schedule_check.h"
#include "support/drawn_schedule.h"
#include "support/generated_schedule.h"
#include "support/golden_part.h"

namespace spillway::planner_schedule {
namespace {

std::string fault_in(const Schedule& schedule) {
  const auto fault = schedule::first_fault(schedule);
  return fault ? schedule::to_string(*fault) : "none";
}

/// f = 1 s, b = 2 s; a stash takes `copy_seconds` each way.
ScheduleCosts costs_of(const Schedule& schedule, double copy_seconds) {
  ScheduleCosts costs = even_costs(schedule, 1.0, 1.0, 1.0);
  for (StageCosts& stage : costs.stages) {
    stage.stash = 1000_B;
    stage.weights = 400_B;
  }
  costs.host.rate = TransferRate(1000.0 / copy_seconds);
  return costs;
}

double worst_stashes(const ScheduleTiming& timing) {
  double worst = 0.0;
  for (const RankTiming& rank : timing.ranks) worst = std::max(worst, rank.peak_stashes);
  return worst;
}

TEST(WithSwappedStashes, TakesMemoryOutOfAGemsChainWithoutTime) {
  for (const std::uint32_t stages : {4U, 5U, 8U})
    for (const std::uint32_t replicas : {2U, 3U}) {
      const Schedule plain = *with_communication(gems(stages, 8, replicas));
      const ScheduleCosts costs = costs_of(plain, 0.5);
      const Schedule swapped = with_swapped_stashes(plain, costs);
      EXPECT_EQ(fault_in(swapped), "none");
      const ScheduleTiming before = time_schedule(plain, costs);
      const ScheduleTiming after = time_schedule(swapped, costs);
      EXPECT_NEAR(after.step_seconds, before.step_seconds, 1e-6);
      EXPECT_EQ(worst_stashes(before), 8.0);
      EXPECT_LE(worst_stashes(after), 5.0) << stages << " " << replicas;
      EXPECT_GT(after.ranks[0].host_traffic, 0_B);
    }
}

TEST(WithSwappedStashes, LeavesAloneWhatDoesNotFit) {
  const Schedule plain = *with_communication(gems(4, 2, 2));
  EXPECT_EQ(with_swapped_stashes(plain, costs_of(plain, 100.0)).ranks, plain.ranks);
  // One micro-batch per replica: while it is away, nothing else needs its room.
  const Schedule single = *with_communication(gems(4, 1, 4));
  EXPECT_EQ(with_swapped_stashes(single, costs_of(single, 0.1)).ranks, single.ranks);
}

TEST(WithSwappedStashes, WorksWithinOtherSchedules) {
  for (const char* name :
       {"gpipe", "1f1b", "zb-h2", "interleaved", "chimera", "v-half", "dualpipe-v"}) {
    const Schedule plain = *with_communication(generated(name, 4, 16));
    const ScheduleCosts costs = costs_of(plain, 0.4);
    const Schedule swapped = with_swapped_stashes(plain, costs);
    EXPECT_EQ(fault_in(swapped), "none") << name;
    const ScheduleTiming after = time_schedule(swapped, costs);
    EXPECT_LE(after.step_seconds, time_schedule(plain, costs).step_seconds * (1 + 1e-9)) << name;
    EXPECT_GT(after.ranks[0].host_traffic, 0_B) << name;
  }
}

TEST(WithRecomputation, RecomputesWhileTheGradientIsOnItsWay) {
  const Schedule plain = generated("gems-mast", 4, 2);
  const std::vector<std::uint32_t> ends{0, 3};
  const Schedule recomputed = with_recomputation(plain, ends);
  EXPECT_EQ(fault_in(recomputed), "none");
  EXPECT_EQ(drawing(recomputed),
            "r0: F0 R0 .. .. .. .. .. .. .. .. .. B0 B0 F1 R1 B1 B1 .. .. .. .. .. ..\n"
            "r1: .. F0 .. .. .. .. .. .. .. B0 B0 F1 .. .. .. .. .. B1 B1 .. .. .. ..\n"
            "r2: .. .. F0 .. .. .. .. B0 B0 F1 .. .. .. .. .. .. .. .. .. B1 B1 .. ..\n"
            "r3: .. .. .. F0 R0 B0 B0 F1 R1 .. .. .. .. .. .. .. .. .. .. .. .. B1 B1\n");
}

TEST(WithRecomputation, KeepsTheInputAloneInBetween) {
  const Schedule plain = generated("1f1b", 4, 8);
  const std::vector<std::uint32_t> all{0, 1, 2, 3};
  const Schedule recomputed = with_recomputation(plain, all);
  const auto factors = rank_factors(recomputed, {.input = 0.1});
  EXPECT_NEAR(factors[0].in_flight, 4 * 0.1 + 0.9, 1e-12);
  EXPECT_EQ(fault_in(recomputed), "none");
  const std::vector<std::uint32_t> beyond{4};
  EXPECT_THROW(with_recomputation(plain, beyond), ConfigError);
}

TEST(WithRecomputation, LeavesAloneWhatIsRecomputedAlready) {
  const std::vector<std::uint32_t> some{0, 2};
  const std::vector<std::uint32_t> all{0, 1, 2, 3};
  const Schedule once = with_recomputation(*with_communication(gems(4, 3, 2)), some);
  EXPECT_EQ(with_recomputation(once, some).ranks, once.ranks);
  EXPECT_EQ(fault_in(with_recomputation(once, all)), "none");
  ScheduleCosts costs = costs_of(once, 0.5);
  costs.memory = 2400_B;
  EXPECT_EQ(fault_in(with_memory_fitted(once, costs)), "none");
}

// Of a pair that runs as one each belongs to another stage, so no copy is ever out of use.
TEST(WithParkedWeights, GivesSchedulesWithoutFaultsOrRefuses) {
  std::set<std::string_view> parked;
  for (const ScheduleGenerator& generator : schedule_generators()) {
    const Schedule plain =
        *with_communication(generator.generate({.ranks = 4, .micro_batches = 8}));
    const OrRefusal<Schedule> made = with_parked_weights(plain);
    if (!made) continue;
    EXPECT_EQ(fault_in(*made), "none") << generator.name;
    parked.insert(generator.name);
  }
  EXPECT_TRUE(parked.contains("gems-master"));
  EXPECT_FALSE(parked.contains("dualpipe-v"));
}

TEST(WithParkedWeights, HoldsOneCopyWhileStashesAreManiest) {
  for (const std::uint32_t stages : {2U, 3U, 4U, 7U})
    for (const std::uint32_t replicas : {2U, 3U, 4U}) {
      const Schedule plain = *with_communication(gems(stages, 4, replicas));
      const Schedule parked = *with_parked_weights(plain);
      EXPECT_EQ(fault_in(parked), "none") << stages << " " << replicas;
      ScheduleCosts costs = costs_of(plain, 0.01);
      const ScheduleTiming before = time_schedule(plain, costs);
      const ScheduleTiming after = time_schedule(parked, costs);
      EXPECT_NEAR(after.step_seconds, before.step_seconds, 0.1) << stages << " " << replicas;
      for (std::uint32_t rank = 0; rank < stages; ++rank) {
        const bool is_middle = 2 * rank + 1 == stages;
        // Four stashes with two copies before; now four with one, and one with two.
        EXPECT_EQ(before.ranks[rank].peak_memory, is_middle ? 4400_B : 4800_B);
        EXPECT_EQ(after.ranks[rank].peak_memory, 4400_B) << stages << " " << rank;
      }
    }
}

// A copy comes back for each turn but the first, and for the steps; it is written after these.
TEST(WithParkedWeights, MovesACopyPerTurn) {
  const Schedule parked = *with_parked_weights(*with_communication(gems(4, 2, 4)));
  const ScheduleTiming timing = time_schedule(parked, costs_of(parked, 0.01));
  for (const RankTiming& rank : timing.ranks) EXPECT_EQ(rank.host_traffic, (3 + 1 + 1) * 400_B);
}

TEST(WithParkedWeights, RefusesSchedulesWithoutASecondCopyToPark) {
  GoldenPart golden;
  golden.add(with_parked_weights(generated("1f1b", 4, 4)).refusal().sentence);
  golden.add(with_parked_weights(generated("dualpipe-v", 4, 8)).refusal().sentence);
  golden.add(with_parked_weights(
                 generated("interleaved", {.ranks = 4, .micro_batches = 8, .stages_per_rank = 3}))
                 .refusal()
                 .sentence);
  const Schedule owned =
      *with_communication(gems(4, 1, 2), CommunicationOptions{.copy_rule = CopyRule::kSingleOwner});
  golden.add(with_parked_weights(owned).refusal().sentence);
}

std::size_t count_of(const Schedule& schedule, std::uint32_t rank, ActionKind kind) {
  const auto& list = schedule.ranks[rank];
  return static_cast<std::size_t>(std::count_if(
      list.begin(), list.end(), [&](const Action& action) { return action.kind == kind; }));
}

ScheduleCosts stash_costs(const Schedule& schedule, double copy_seconds, Bytes memory) {
  ScheduleCosts costs = costs_of(schedule, copy_seconds);
  for (StageCosts& stage : costs.stages) stage.weights = Bytes(0);
  costs.memory = memory;
  return costs;
}

TEST(WithMemoryFitted, HoldsThreeOfEightMicroBatchesForNothingWhereCopiesAreFast) {
  const Schedule plain = *with_communication(gems(8, 8, 4));
  const ScheduleCosts costs = stash_costs(plain, 0.9, 3000_B);
  const Schedule fitted = with_memory_fitted(plain, costs);
  EXPECT_EQ(fault_in(fitted), "none");
  const ScheduleTiming timing = time_schedule(fitted, costs);
  EXPECT_NEAR(timing.step_seconds, time_schedule(plain, costs).step_seconds, 1e-6);
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(timing.ranks[rank].peak_memory, 3000_B);
    EXPECT_EQ(count_of(fitted, rank, ActionKind::kRecompute), 0U);
  }
}

// The ends have the least idle time, so they swap least; and neither way alone is as fast.
TEST(WithMemoryFitted, RecomputesMoreAtTheEnds) {
  const Schedule plain = *with_communication(gems(4, 3, 4));
  const ScheduleCosts costs = stash_costs(plain, 1.6, 2000_B);
  const Schedule fitted = with_memory_fitted(plain, costs);
  EXPECT_EQ(fault_in(fitted), "none");
  const ScheduleTiming timing = time_schedule(fitted, costs);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const bool is_end = rank == 0 || rank == 3;
    EXPECT_LE(timing.ranks[rank].peak_memory, 2000_B) << rank;
    EXPECT_EQ(count_of(fitted, rank, ActionKind::kSwapOut), is_end ? 6U : 8U) << rank;
    EXPECT_EQ(count_of(fitted, rank, ActionKind::kRecompute), is_end ? 6U : 4U) << rank;
  }
  const std::vector<std::uint32_t> all{0, 1, 2, 3};
  EXPECT_LT(timing.step_seconds,
            time_schedule(with_recomputation(plain, all), costs).step_seconds - 3.0);
}

TEST(WithMemoryFitted, RecomputesAloneWhereThatIsFaster) {
  const Schedule plain = *with_communication(gems(4, 4, 2));
  ScheduleCosts costs = stash_costs(plain, 4.0, 1000_B);
  for (StageCosts& stage : costs.stages) stage.recompute_seconds = 0.01;
  const Schedule fitted = with_memory_fitted(plain, costs);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(count_of(fitted, rank, ActionKind::kSwapOut), 0U);
    EXPECT_EQ(count_of(fitted, rank, ActionKind::kRecompute), 8U);
  }
}

TEST(WithMemoryFitted, RefusesNoLimit) {
  const Schedule plain = gems(4, 4, 2);
  EXPECT_THROW(with_memory_fitted(plain, costs_of(plain, 1.0)), ConfigError);
}

}  // namespace
}  // namespace spillway::planner_schedule
