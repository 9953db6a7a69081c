#include "spillway/planner/step_events.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "random_tapes.h"
#include "swaps_alone.h"

namespace spillway::planner {
namespace {

constexpr double kNearly = 1e-9;

struct Observed {
  profile::StepTape tape;
  SwapLimits limits;
  SwapPlan plan;
  StepEstimate estimate;
  StepEvents events;
};

/// Budgets from the smallest to the live peak, whatever the seed gives.
Observed observed(std::uint64_t seed) {
  Observed result;
  result.tape = random_tape(seed, {.ops = 40, .has_long_lives = seed % 3 == 0});
  const std::uint32_t least = std::max(1U, smallest_budget(result.tape));
  const std::uint32_t most = std::max(least, live_peak(result.tape));
  result.limits.budget_pages = least + (most - least) * static_cast<std::uint32_t>(seed % 4) / 4;
  result.limits.rates = {.write = TransferRate(1e9), .read = TransferRate(2e9)};
  result.plan = plan_swaps(result.tape, result.limits);
  result.estimate = observe_step(result.tape, result.plan, result.limits, result.events);
  return result;
}

/// A plan that is carried out on a disk so many times slower than the one that it was made for.
Observed on_a_slower_disk(std::uint64_t seed, double slower) {
  Observed result;
  const auto ops = static_cast<std::uint32_t>(6 + 5 * (seed % 7));
  result.tape = random_tape(seed, {.ops = ops, .has_long_lives = seed % 2 == 0});
  const std::uint32_t least = std::max(1U, smallest_budget(result.tape));
  const std::uint32_t most = std::max(least, live_peak(result.tape));
  result.limits.budget_pages = least + (most - least) * static_cast<std::uint32_t>(seed % 4) / 4;
  result.limits.rates = {.write = TransferRate(1e9), .read = TransferRate(2e9)};
  result.limits.refinement_ops = 0;
  result.plan = plan_swaps(result.tape, result.limits);
  result.limits.rates.write = result.limits.rates.write / slower;
  result.limits.rates.read = result.limits.rates.read / slower;
  result.estimate = observe_step(result.tape, result.plan, result.limits, result.events);
  return result;
}

/// Seconds of operators and waits, and what transfers cost them.
double seconds_told(const Observed& o) {
  double sum = o.estimate.interference_seconds;
  for (const OperatorEvent& op : o.events.operators) sum += op.end - op.begin;
  for (const WaitEvent& wait : o.events.waits) sum += wait.end - wait.begin;
  return sum;
}

std::uint64_t written_pages_told(const Observed& o) {
  std::uint64_t pages = 0;
  for (const TransferEvent& transfer : o.events.transfers)
    if (transfer.direction == Direction::kWriteOut) pages += transfer.pages;
  return pages;
}

TEST(ObserveStep, TellsTheSettledRepetitionAlsoWhenItIsTheLastOneTried) {
  // With these the eighth repetition, the last one, is the first that ends as it began.
  for (const auto& [seed, slower] : {std::pair{64163U, 12.0}, std::pair{172363U, 6.0},
                                     std::pair{224863U, 4.0}, std::pair{235271U, 4.0}}) {
    const Observed o = on_a_slower_disk(seed, slower);
    EXPECT_TRUE(o.estimate.is_settled) << seed;
    EXPECT_NEAR(seconds_told(o), o.estimate.step_seconds, kNearly) << seed;
    EXPECT_EQ(written_pages_told(o), o.estimate.written_pages) << seed;
  }
}

TEST(ObserveStep, SaysWhenItIsAMeanOfRepetitionsThatDiffer) {
  const Observed o = on_a_slower_disk(827, 4.0);
  EXPECT_FALSE(o.estimate.is_settled);
  EXPECT_TRUE(o.estimate.is_complete);
  EXPECT_NE(written_pages_told(o), o.estimate.written_pages);
  EXPECT_TRUE(observed(0).estimate.is_settled);
}

TEST(ObserveStep, ChangesNothing) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Observed o = observed(seed);
    const StepEstimate plain = estimate_step(o.tape, o.plan, o.limits);
    EXPECT_EQ(o.estimate.step_seconds, plain.step_seconds) << seed;
    EXPECT_EQ(o.estimate.written_pages, plain.written_pages) << seed;
    EXPECT_EQ(o.estimate.peak_pages, plain.peak_pages) << seed;
  }
}

TEST(ObserveStep, FillsTheStepWithOperatorsAndWaits) {
  double waited_in_all = 0.0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Observed o = observed(seed);
    ASSERT_EQ(o.events.operators.size(), o.tape.ops.size()) << seed;
    std::vector<std::pair<double, double>> spans;
    double waited = 0.0;
    for (const OperatorEvent& op : o.events.operators) spans.emplace_back(op.begin, op.end);
    for (const WaitEvent& wait : o.events.waits) {
      spans.emplace_back(wait.begin, wait.end);
      waited += wait.end - wait.begin;
      EXPECT_LE(wait.end, o.events.operators[wait.op].begin + kNearly) << seed;
    }
    std::sort(spans.begin(), spans.end());
    double end = 0.0;
    for (const auto& span : spans) {
      EXPECT_NEAR(span.first, end, kNearly) << seed;
      end = span.second;
    }
    EXPECT_NEAR(end + o.estimate.interference_seconds, o.estimate.step_seconds, kNearly) << seed;
    EXPECT_NEAR(waited, o.estimate.stall_seconds, kNearly) << seed;
    waited_in_all += waited;
  }
  EXPECT_GT(waited_in_all, 0.0);
}

TEST(ObserveStep, CountsEachMovedPageOnceAndMovesOneChunkPerDirectionAtATime) {
  std::uint64_t moved_in_all = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Observed o = observed(seed);
    for (const Direction direction : {Direction::kWriteOut, Direction::kReadIn}) {
      std::uint64_t pages = 0;
      double end = -1e9;
      for (const TransferEvent& transfer : o.events.transfers) {
        if (transfer.direction != direction) continue;
        EXPECT_GE(transfer.begin, end - kNearly) << seed;
        EXPECT_GE(transfer.end, transfer.begin) << seed;
        EXPECT_LT(transfer.value, o.tape.values.size()) << seed;
        end = transfer.end;
        pages += transfer.pages;
      }
      const bool is_write = direction == Direction::kWriteOut;
      EXPECT_EQ(pages, is_write ? o.estimate.written_pages : o.estimate.read_pages) << seed;
      moved_in_all += pages;
    }
  }
  EXPECT_GT(moved_in_all, 0U);
}

TEST(ObserveStep, TellsTheResidentPagesWithinTheBudget) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Observed o = observed(seed);
    std::uint32_t peak = 0;
    double at = -1e9;
    for (const ResidencyEvent& point : o.events.residency) {
      EXPECT_GE(point.at, at) << seed;
      at = point.at;
      peak = std::max(peak, point.pages);
    }
    EXPECT_GE(peak, o.estimate.peak_pages) << seed;
    EXPECT_LE(peak, o.limits.budget_pages) << seed;
  }
}

TEST(ObserveStep, NamesWhatAnOperatorWaitsFor) {
  // Operator 0 makes a value of 4 pages, operator 1 needs the whole budget, operator 2 the value.
  profile::StepTape tape;
  tape.values = {{.pages = 4, .birth = 0, .death = 2}};
  tape.uses = {{.value = 0}};
  tape.ops = {{.time = Duration(1000), .inside_peak_pages = 4},
              {.time = Duration(1000), .inside_peak_pages = 4},
              {.time = Duration(1000), .first_use = 0, .use_count = 1}};
  SwapLimits limits;
  limits.budget_pages = 4;
  const SwapsAlone plan = plan_swaps(tape, limits);
  StepEvents events;
  observe_step(tape, plan, limits, events);
  ASSERT_EQ(events.waits.size(), 2U);
  EXPECT_EQ(events.waits[0].op, 1U);
  EXPECT_EQ(events.waits[0].reason, WaitReason::kRoom);
  EXPECT_EQ(events.waits[0].value, profile::kNoValue);
  EXPECT_EQ(events.waits[1].op, 2U);
  EXPECT_EQ(events.waits[1].reason, WaitReason::kPages);
  EXPECT_EQ(events.waits[1].value, 0U);
  ASSERT_EQ(events.transfers.size(), 2U);
  EXPECT_EQ(events.transfers[1].direction, Direction::kReadIn);
  EXPECT_TRUE(events.transfers[1].is_demanded);
}

}  // namespace
}  // namespace spillway::planner
