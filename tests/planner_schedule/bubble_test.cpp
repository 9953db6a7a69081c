#include <gmock/gmock.h>

#include <algorithm>

#include "spillway/planner/schedule/rank_memory.h"
#include "spillway/planner/schedule/schedule_timing.h"
#include "support/generated_schedule.h"

namespace spillway::planner_schedule {
namespace {

using ::testing::Each;

/// Unequal halves, so that a form cannot fit by chance.
constexpr double kF = 1.0;
constexpr double kI = 1.25;
constexpr double kW = 0.75;
constexpr double kB = kI + kW;

ScheduleTiming timing_of(const Schedule& schedule, double f = kF, double i = kI, double w = kW) {
  return time_schedule(schedule, even_costs(schedule, f, i, w));
}

std::vector<double> in_flight(const Schedule& schedule) {
  std::vector<double> all;
  for (const HeldCounts& factors : rank_factors(schedule)) all.push_back(factors.in_flight);
  return all;
}

double worst_in_flight(const Schedule& schedule) {
  const std::vector<double> all = in_flight(schedule);
  return *std::max_element(all.begin(), all.end());
}

template <typename Visit>
void for_each_size(Visit visit) {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 4U, 5U, 8U, 16U})
    for (const std::uint32_t micro_batches : {1U, 2U, 3U, 4U, 8U, 13U, 32U})
      visit(ranks, micro_batches);
}

TEST(Bubble, OfGPipeAndOneForwardOneBackward) {
  for_each_size([](std::uint32_t p, std::uint32_t m) {
    for (const char* name : {"gpipe", "1f1b"}) {
      const Schedule schedule = generated(name, p, m);
      const ScheduleTiming timing = timing_of(schedule);
      EXPECT_NEAR(timing.step_seconds, (m + p - 1) * (kF + kB), 1e-9) << name << p << " " << m;
      EXPECT_NEAR(timing.bubble, (p - 1.0) / (m + p - 1.0), 1e-9) << name << p << " " << m;
    }
    EXPECT_THAT(in_flight(generated("gpipe", p, m)), Each(m));
    const std::vector<double> held = in_flight(generated("1f1b", p, m));
    for (std::uint32_t stage = 0; stage < p; ++stage)
      EXPECT_EQ(held[stage], std::min(m, p - stage)) << p << " " << m;
  });
}

TEST(Bubble, OfInterleavedIsSmallerByTheStagesPerRank) {
  for (const std::uint32_t p : {1U, 2U, 3U, 4U, 8U})
    for (const std::uint32_t v : {1U, 2U, 3U, 4U})
      for (const std::uint32_t rounds : {1U, 2U, 5U}) {
        const ScheduleRequest request{
            .ranks = p, .micro_batches = rounds * p, .stages_per_rank = v};
        const double m = request.micro_batches;
        for (const char* name : {"interleaved", "breadth-first"}) {
          const ScheduleTiming timing = timing_of(generated(name, request));
          EXPECT_NEAR(timing.step_seconds, (m * v + p - 1) * (kF + kB), 1e-9)
              << name << " " << p << " " << v << " " << m;
        }
        EXPECT_THAT(in_flight(generated("breadth-first", request)), Each(m));
        if (rounds < 2 || v < 2) continue;
        const double form = p * (1.0 + (p - 1.0) / (p * v));
        EXPECT_NEAR(in_flight(generated("interleaved", request))[0], form, 1e-9) << p << " " << v;
      }
}

TEST(Bubble, OfZeroBubbleOneIsAThird) {
  for_each_size([](std::uint32_t p, std::uint32_t m) {
    if (m < p) return;
    const Schedule schedule = generated("zb-h1", p, m);
    const double idle = timing_of(schedule, 1.0, 1.0, 1.0).step_seconds - 3.0 * m;
    EXPECT_NEAR(idle, (p - 1) * 1.0, 1e-9) << p << " " << m;
    EXPECT_NEAR(timing_of(generated("1f1b", p, m), 1.0, 1.0, 1.0).step_seconds - 3.0 * m, 3 * idle,
                1e-9);
    EXPECT_THAT(in_flight(schedule), Each(p)) << m;
  });
}

TEST(Bubble, OfZeroBubbleOneWithUnequalTimes) {
  for (const std::uint32_t p : {2U, 4U, 8U}) {
    const double m = 3 * p;
    const ScheduleTiming timing = timing_of(generated("zb-h1", p, 3 * p));
    EXPECT_NEAR(timing.step_seconds - m * (kF + kB), (p - 1) * (kF + kB - 2 * kW), 1e-9) << p;
  }
}

TEST(Bubble, OfZeroBubbleTwoIsGoneWithoutAFlush) {
  for_each_size([](std::uint32_t p, std::uint32_t m) {
    if (m < 2 * p - 1) return;
    const Schedule schedule = generated("zb-h2", p, m);
    EXPECT_NEAR(timing_of(schedule, 1.0, 1.0, 1.0).period_seconds, 3.0 * m, 1e-9) << p << " " << m;
    EXPECT_THAT(in_flight(schedule), Each(2 * p - 1)) << m;
  });
}

TEST(Bubble, OfZeroBubbleVIsGoneInTheMemoryOfOneForwardOneBackward) {
  for_each_size([](std::uint32_t p, std::uint32_t m) {
    if (m < 2 * p) return;
    const Schedule schedule = generated("zb-v", p, m);
    EXPECT_NEAR(timing_of(schedule, 1.0, 1.0, 1.0).period_seconds, 6.0 * m, 1e-9) << p << " " << m;
    EXPECT_EQ(worst_in_flight(schedule), p) << m;
  });
}

// 1F1B of the same stages of two chunks has 2 * 3 * (p - 1) ticks of bubble.
TEST(Bubble, OfVHalfIsHalfToATick) {
  for (std::uint32_t p = 2; p <= 16; ++p)
    for (const std::uint32_t m : {p, 2 * p, 5 * p}) {
      const Schedule schedule = generated("v-half", p, m);
      const double idle = timing_of(schedule, 1.0, 1.0, 1.0).step_seconds - 6.0 * m;
      EXPECT_NEAR(idle, 0.5 * 6.0 * (p - 1) - (p % 2 == 1 ? 1.0 : 0.0), 1e-9) << p << " " << m;
      EXPECT_EQ(worst_in_flight(schedule), (p + 2) / 2) << m;
    }
}

TEST(Bubble, OfVMinIsTwoThirdsToATick) {
  for (std::uint32_t p = 2; p <= 16; ++p)
    for (const std::uint32_t m : {p, 2 * p, 5 * p}) {
      const Schedule schedule = generated("v-min", p, m);
      const double idle = timing_of(schedule, 1.0, 1.0, 1.0).step_seconds - 6.0 * m;
      // Every third count of ranks needs a gap of two ticks, which costs its share.
      EXPECT_NEAR(idle, 2.0 / 3.0 * 6.0 * (p - 1) + (p % 3 == 0 ? 1.0 : -1.0), 1e-9) << p;
      EXPECT_EQ(worst_in_flight(schedule), (p + 4) / 3) << m;
    }
}

TEST(Bubble, OfChimeraWithEqualForwardAndBackward) {
  for (const std::uint32_t p : {2U, 4U, 6U, 8U, 16U})
    for (const std::uint32_t m : {p, 2 * p, 4 * p}) {
      const Schedule schedule = generated("chimera", p, m);
      const ScheduleTiming timing = timing_of(schedule, 1.0, 0.5, 0.5);
      EXPECT_NEAR(timing.bubble, (p - 2.0) / (2.0 * m + p - 2.0), 1e-9) << p << " " << m;
      for (const HeldCounts& factors : rank_factors(schedule)) {
        EXPECT_GE(factors.in_flight, p / 2 + (p > 2 ? 1 : 0)) << p << " " << m;
        EXPECT_LE(factors.in_flight, p);
        EXPECT_EQ(factors.weight_versions, 2.0);
      }
    }
}

TEST(Bubble, OfDualPipeVWithEqualTimes) {
  for (const std::uint32_t p : {1U, 2U, 3U, 4U, 8U})
    for (const std::uint32_t m : {2 * p, 4 * p}) {
      const Schedule schedule = generated("dualpipe-v", p, m);
      const double idle = timing_of(schedule, 1.0, 1.0, 1.0).step_seconds - 6.0 * m;
      EXPECT_NEAR(idle, (p - 1) * ((1.0 + 2.0) + 2.0 - 3 * 1.0), 1e-9) << p << " " << m;
      // p + 1 in the unit of DualPipe, whose p stages lie on p / 2 ranks of ours.
      EXPECT_THAT(in_flight(schedule), Each((2 * p + 1) / 2.0)) << p;
    }
}

TEST(Bubble, OfCappedOneForwardOneBackwardInSteadyState) {
  using Size = std::pair<std::uint32_t, std::uint32_t>;
  for (const Size& size : {Size{4, 1}, Size{4, 2}, Size{4, 3}, Size{4, 4}, Size{5, 3}, Size{8, 1},
                           Size{8, 4}, Size{8, 8}, Size{16, 4}}) {
    const std::uint32_t p = size.first;
    const std::uint32_t slots = size.second;
    const auto step = [&](std::uint32_t micro_batches) {
      const ScheduleRequest request{.ranks = p, .micro_batches = micro_batches, .slots = slots};
      const Schedule schedule = generated("1f1b-capped", request);
      EXPECT_EQ(worst_in_flight(schedule), slots);
      return timing_of(schedule, 1.0, 1.0, 1.0).step_seconds;
    };
    const double per_micro_batch = (step(16 * slots) - step(8 * slots)) / (8.0 * slots);
    EXPECT_NEAR(per_micro_batch, p * 3.0 / slots, 1e-9) << p << " " << slots;
  }
}

// Cost per micro-batch at K slots in steady state, with b = 2 f: forms are S(f+b)/K for capped 1F1B
// and ((S+K-1)b + Kf)/K for the chain.
TEST(SameMemory, GemsBeatsCappedOneForwardOneBackwardWithFewSlots) {
  struct Row {
    std::uint32_t stages, slots;
    double gpipe, capped, gems;
  };
  for (const Row& row :
       {Row{4, 1, 12, 12, 9}, Row{4, 2, 7.5, 6, 6}, Row{4, 4, 5.25, 3, 4.5}, Row{8, 1, 24, 24, 17},
        Row{8, 2, 13.5, 12, 10}, Row{8, 4, 8.25, 6, 6.5}, Row{8, 8, 5.625, 3, 4.75},
        Row{16, 4, 14.25, 12, 10.5}, Row{16, 8, 8.625, 6, 6.75}}) {
    const auto seconds = [](const Schedule& schedule) {
      return timing_of(schedule, 1.0, 1.0, 1.0).step_seconds;
    };
    const double k = row.slots;
    EXPECT_NEAR(seconds(generated("gpipe", row.stages, row.slots)) / k, row.gpipe, 1e-9);
    const double chain =
        seconds(gems(row.stages, row.slots, 9)) - seconds(gems(row.stages, row.slots, 5));
    EXPECT_NEAR(chain / (4 * k), row.gems, 1e-9) << row.stages << " " << k;
    const auto capped = [&](std::uint32_t micro_batches) {
      return seconds(
          generated("1f1b-capped",
                    {.ranks = row.stages, .micro_batches = micro_batches, .slots = row.slots}));
    };
    EXPECT_NEAR((capped(16 * row.slots) - capped(8 * row.slots)) / (8 * k), row.capped, 1e-9);
  }
}

}  // namespace
}  // namespace spillway::planner_schedule
