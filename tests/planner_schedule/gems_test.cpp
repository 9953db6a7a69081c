#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "spillway/planner/schedule/rank_memory.h"
#include "spillway/planner/schedule/schedule_timing.h"
#include "support/generated_schedule.h"

namespace spillway::planner_schedule {
namespace {

/// What the closed forms are in: stages S, micro-batches P per replica, replicas R, times of a
/// forward and a backward.
struct Gems {
  double s, p, r, f, b;

  double total() const { return (s + p - 1) * f + r * (s + p - 1) * b + (r - 1) * p * f; }
};

ScheduleTiming timing_of(const Schedule& schedule, double f, double b) {
  return time_schedule(schedule, even_costs(schedule, f, b / 2, b / 2));
}

template <typename Visit>
void for_each_chain(Visit visit) {
  for (std::uint32_t stages = 2; stages <= 16; ++stages)
    for (const std::uint32_t per_replica : {1U, 2U, 3U, 5U, 8U})
      for (const std::uint32_t replicas : {1U, 2U, 3U, 4U, 8U})
        for (const double ratio : {1.0, 1.5, 2.0, 3.0}) {
          const Gems form{static_cast<double>(stages), static_cast<double>(per_replica),
                          static_cast<double>(replicas), 1.0, ratio};
          visit(gems(stages, per_replica, replicas), form);
        }
}

TEST(GemsChain, TakesTheTotalOfItsClosedForm) {
  for_each_chain([](const Schedule& schedule, const Gems& form) {
    const ScheduleTiming timing = timing_of(schedule, form.f, form.b);
    EXPECT_NEAR(timing.step_seconds, form.total(), 1e-9 * form.total());
    const double work = (form.f + form.b) * form.p * form.r;
    EXPECT_NEAR(timing.bubble, 1 - work / form.total(), 1e-9);
  });
}

// A shorter backward lets a wave catch up with the one before: no closed form then.
TEST(GemsChain, IsLongerThanTheFormWhereBackwardIsShorterThanForward) {
  const Schedule schedule = gems(4, 1, 4);
  EXPECT_GT(timing_of(schedule, 1.0, 0.5).step_seconds, (Gems{4, 1, 4, 1, 0.5}).total());
}

TEST(GemsBasic, RunsOneBatchAfterTheOther) {
  for (const std::uint32_t stages : {1U, 2U, 5U})
    for (const std::uint32_t batches : {1U, 3U}) {
      const Schedule schedule =
          generated("gems-basic", {.ranks = stages, .micro_batches = batches, .replicas = batches});
      EXPECT_NEAR(timing_of(schedule, 1.0, 2.0).step_seconds, batches * stages * 3.0, 1e-9);
    }
}

TEST(GemsMast, SavesAllForwardsButOneStageOfTheSecondReplica) {
  for (const std::uint32_t stages : {2U, 3U, 4U, 7U}) {
    const double basic = 2 * stages * 3.0;
    const double mast = timing_of(generated("gems-mast", stages, 2), 1.0, 2.0).step_seconds;
    EXPECT_NEAR(basic - mast, stages - 1.0, 1e-9);
  }
}

/// Starts and ends of a compute.
ActionSpan span_of(const Schedule& schedule, const ScheduleTiming& timing, const Action& wanted) {
  const std::uint32_t rank = schedule.rank_of(wanted.replica, wanted.stage);
  const auto& list = schedule.ranks[rank];
  const auto found = std::find(list.begin(), list.end(), wanted);
  EXPECT_NE(found, list.end()) << wanted;
  return timing.spans[rank][static_cast<std::size_t>(found - list.begin())];
}

TEST(GemsMast, StartsTheSecondReplicaDirectlyBehindTheFirst) {
  for (const std::uint32_t stages : {2U, 3U, 4U, 9U}) {
    const Schedule schedule = generated("gems-mast", stages, 2);
    const double f = 1.0;
    const double b = 2.0;
    const ScheduleTiming timing = timing_of(schedule, f, b);
    for (std::uint32_t rank = 0; rank < stages; ++rank) {
      const std::uint32_t inverted = stages - 1 - rank;
      const ActionSpan b0 = span_of(schedule, timing, {ActionKind::kBackward, rank, 0, 0});
      const ActionSpan f1 = span_of(schedule, timing, {ActionKind::kForward, inverted, 0, 1});
      const ActionSpan b1 = span_of(schedule, timing, {ActionKind::kBackward, inverted, 0, 1});
      EXPECT_NEAR(f1.start_seconds, stages * f + (stages - rank) * b, 1e-9);
      EXPECT_NEAR(f1.start_seconds, b0.end_seconds, 1e-9);
      EXPECT_NEAR(b1.end_seconds, stages * f + stages * b + f + (rank + 1) * b, 1e-9);
    }
  }
}

TEST(GemsChain, HoldsAtMostTheMicroBatchesOfOneReplicaOnEveryRank) {
  for_each_chain([](const Schedule& schedule, const Gems& form) {
    for (const RankTiming& rank : timing_of(schedule, form.f, form.b).ranks)
      EXPECT_DOUBLE_EQ(rank.peak_stashes, form.p);
    for (const HeldCounts& factors : rank_factors(schedule))
      EXPECT_DOUBLE_EQ(factors.in_flight, form.p);
  });
}

TEST(GemsChain, HoldsTwoCopiesOfTheWeights) {
  for (const std::uint32_t stages : {2U, 3U, 4U}) {
    const auto factors = rank_factors(gems(stages, 1, 3));
    for (std::uint32_t rank = 0; rank < stages; ++rank) {
      const bool is_middle = 2 * rank + 1 == stages;
      EXPECT_EQ(factors[rank].weight_versions, is_middle ? 1.0 : 2.0) << stages << " " << rank;
    }
  }
}

/// Stashes of all ranks together just behind a moment.
double stashes_at(const ScheduleTiming& timing, double seconds) {
  double sum = 0.0;
  for (const RankTiming& rank : timing.ranks) {
    double held = 0.0;
    for (const MemoryMoment& moment : rank.memory)
      if (moment.seconds <= seconds + 1e-9) held = moment.stashes;
    sum += held;
  }
  return sum;
}

// The curve of the published figure of MAST: up through the first forward, flat while the first
// backward drains and the second forward fills, down through the second backward.
TEST(GemsMast, DrawsThePublishedMemoryCurve) {
  constexpr std::uint32_t kStages = 6;
  const ScheduleTiming timing = timing_of(generated("gems-mast", kStages, 2), 1.0, 2.0);
  const double first_turn = kStages;                       // The first replica turns round.
  const double second_turn = kStages + 2.0 * kStages + 1;  // So does the second one.
  for (double t = 0.0; t < first_turn; t += 1.0) EXPECT_EQ(stashes_at(timing, t), t + 1) << t;
  for (double t = first_turn; t < second_turn; t += 1.0)
    EXPECT_NEAR(stashes_at(timing, t), kStages, 1e-9) << t;
  for (std::uint32_t i = 0; i <= kStages; ++i)
    EXPECT_NEAR(stashes_at(timing, second_turn + 2.0 * i), kStages - i, 1e-9) << i;
}

TEST(GemsMaster, RepeatsTheFlatPartOfTheMemoryCurve) {
  constexpr std::uint32_t kStages = 4;
  constexpr std::uint32_t kReplicas = 5;
  const ScheduleTiming timing = timing_of(gems(kStages, 1, kReplicas), 1.0, 2.0);
  const double flat_begin = kStages;
  const double flat_end = kStages + (kReplicas - 1) * (2.0 * kStages + 1);
  for (double t = flat_begin; t < flat_end; t += 1.0)
    EXPECT_NEAR(stashes_at(timing, t), kStages, 1e-9) << t;
  EXPECT_NEAR(stashes_at(timing, timing.step_seconds), 0.0, 1e-9);
}

/// From the end of a forward to the start of its backward: replica j, rank r, micro-batch p.
double window_form(const Gems& form, std::uint32_t j, double r, double p) {
  const auto [s, per_replica, replicas, f, b] = form;
  if (j == 0) return (s + per_replica - 2 - r - p) * f + (s - 1 - r + p) * b;
  const double distance = j % 2 == 1 ? 2 * r : 2 * (s - 1 - r);
  return (distance + p) * b + (per_replica - 1 - p) * f;
}

TEST(GemsChain, LeavesTheIdleWindowsOfItsClosedForm) {
  for (const std::uint32_t stages : {2U, 3U, 4U, 7U})
    for (const std::uint32_t per_replica : {1U, 2U, 5U}) {
      const Gems form{static_cast<double>(stages), static_cast<double>(per_replica), 5, 1.0, 2.0};
      const Schedule schedule = gems(stages, per_replica, 5);
      const ScheduleTiming timing = timing_of(schedule, form.f, form.b);
      for (std::uint32_t j = 0; j < 5; ++j)
        for (std::uint32_t stage = 0; stage < stages; ++stage)
          for (std::uint32_t p = 0; p < per_replica; ++p) {
            const auto forward = span_of(schedule, timing, {ActionKind::kForward, stage, p, j});
            const auto backward = span_of(schedule, timing, {ActionKind::kBackward, stage, p, j});
            EXPECT_NEAR(backward.start_seconds - forward.end_seconds,
                        window_form(form, j, schedule.rank_of(j, stage), p), 1e-9)
                << stages << " " << per_replica << " " << j << " " << stage << " " << p;
          }
    }
}

/// What the program order of the chain means for unequal stages with messages of c seconds.
double recurrence(std::uint32_t stages, std::uint32_t per_replica, std::uint32_t replicas,
                  const std::vector<double>& f, const std::vector<double>& b, double c) {
  std::vector<double> free(stages, 0.0);
  for (std::uint32_t j = 0; j < replicas; ++j) {
    const auto rank = [&](std::uint32_t stage) { return j % 2 ? stages - 1 - stage : stage; };
    std::vector<std::vector<double>> end(stages, std::vector<double>(per_replica));
    for (std::uint32_t s = 0; s < stages; ++s)
      for (std::uint32_t p = 0; p < per_replica; ++p) {
        double start = free[rank(s)];
        if (s > 0) start = std::max(start, end[s - 1][p] + (rank(s) == rank(s - 1) ? 0.0 : c));
        free[rank(s)] = end[s][p] = start + f[s];
      }
    for (std::uint32_t s = stages; s-- > 0;)
      for (std::uint32_t p = 0; p < per_replica; ++p) {
        double start = std::max(free[rank(s)], end[s][p]);
        if (s + 1 < stages) start = std::max(free[rank(s)], end[s + 1][p] + c);
        free[rank(s)] = end[s][p] = start + b[s];
      }
  }
  return *std::max_element(free.begin(), free.end());
}

TEST(GemsChain, FollowsTheRecurrenceForUnequalStages) {
  std::uint32_t seed = 1;
  const auto random = [&] {
    seed = seed * 1664525U + 1013904223U;
    return 0.1 + static_cast<double>(seed >> 16U) / 65536.0;
  };
  for (int i = 0; i < 200; ++i) {
    const std::uint32_t stages = 2 + i % 7;
    const std::uint32_t per_replica = 1 + i % 4;
    const std::uint32_t replicas = 1 + i % 5;
    std::vector<double> f;
    std::vector<double> b;
    const Schedule schedule = gems(stages, per_replica, replicas);
    ScheduleCosts costs = even_costs(schedule, 0.0, 0.0, 0.0);
    for (StageCosts& stage : costs.stages) {
      f.push_back(stage.forward_seconds = random());
      stage.input_gradient_seconds = random();
      stage.weight_gradient_seconds = random();
      b.push_back(stage.input_gradient_seconds + stage.weight_gradient_seconds);
    }
    costs.peer.latency_seconds = i % 3 == 0 ? 0.0 : random();
    EXPECT_NEAR(time_schedule(schedule, costs).step_seconds,
                recurrence(stages, per_replica, replicas, f, b, costs.peer.latency_seconds), 1e-9)
        << i;
  }
}

}  // namespace
}  // namespace spillway::planner_schedule
