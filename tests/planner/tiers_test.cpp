#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "clp.h"
#include "exhaustive.h"
#include "layer_chains.h"
#include "random_tapes.h"
#include "spillway/base/error.h"
#include "spillway/planner/step_events.h"
#include "spillway/planner/strategies.h"
#include "spillway/planner/swap_plan.h"
#include "support/sanitized.h"
#include "swaps_alone.h"
#include "tick_limits.h"

namespace spillway::planner {
namespace {

constexpr double kMillisecond = 1e-3;
constexpr double kNearly = 1e-9;
constexpr std::uint32_t kUnlimited = 1U << 30;

/// A link of one page per millisecond either way, and a disk behind it of so many.
SwapLimits tiers(std::uint32_t budget_pages, std::uint32_t near_pages, double disk_pages) {
  SwapLimits limits = tick_limits(budget_pages, true);
  limits.far = {limits.rates, near_pages};
  limits.far->rates.write = limits.far->rates.write * disk_pages;
  limits.far->rates.read = limits.far->rates.read * disk_pages;
  limits.far->rates.duplex_share = 0.5;
  return limits;
}

/// Operator 0 makes two values of four pages, operator 1 needs all memory, 2 and 3 use one each.
StepTape two_values() {
  StepTape tape;
  tape.values = {{.pages = 4, .birth = 0, .death = 2}, {.pages = 4, .birth = 0, .death = 3}};
  tape.uses = {{.value = 0}, {.value = 1}};
  tape.ops = {{.time = std::chrono::milliseconds(1), .inside_peak_pages = 8},
              {.time = std::chrono::milliseconds(10), .inside_peak_pages = 8},
              {.time = std::chrono::milliseconds(1), .first_use = 0, .use_count = 1},
              {.time = std::chrono::milliseconds(1), .first_use = 1, .use_count = 1}};
  return tape;
}

/// Both leave after operator 0 and come back when they are used.
SwapPlan both_out(const SwapLimits& limits, std::uint32_t far_of_first, std::uint32_t far_of_second,
                  const StepTape& tape = two_values()) {
  SwapChoices choices;
  for (const OpIndex needed : {2U, 3U}) {
    PlannedSwap swap{.pages = 4, .leave = 0, .fetch = needed, .needed = needed, .last_touch = 0};
    swap.value = swap.fetch_value = swap.needed_value = needed - 2;
    swap.far_pages = needed == 2 ? far_of_first : far_of_second;
    swap.out_ops = needed - 1;
    choices.swaps.push_back(swap);
  }
  choices.write_outs = choices.fetches = {0, 1};
  choices.reserve_pages.assign(4, 0);
  return restore_swaps(tape, choices, limits);
}

double milliseconds_of(const SwapLimits& limits, std::uint32_t far_of_first,
                       std::uint32_t far_of_second) {
  return both_out(limits, far_of_first, far_of_second).estimate.step_seconds / kMillisecond;
}

TEST(Tiers, RunBesideEachOtherAndShareTheLink) {
  // Written side by side in 8 ms, half of the link each, then read one after the other: 4 and 8.
  EXPECT_NEAR(milliseconds_of(tiers(8, 8, 0.5), 0, 4), 1 + 8 + 10 + 4 + 1 + 8 + 1, kNearly);
  // The disk takes a third of the link: 4 pages at 2/3 in 6 ms, and 4 at 1/3 in 12.
  EXPECT_NEAR(milliseconds_of(tiers(8, 8, 1.0 / 3), 0, 4), 1 + 12 + 10 + 4 + 1 + 12 + 1, kNearly);
  // A disk that is faster than the link gets half of it, and all of it alone.
  EXPECT_NEAR(milliseconds_of(tiers(8, 8, 2.0), 0, 4), 1 + 8 + 10 + 4 + 1 + 4 + 1, kNearly);
  // One after the other: 4 ms each on the link, 8 ms each on the disk.
  EXPECT_NEAR(milliseconds_of(tiers(8, 8, 0.5), 0, 0), 1 + 8 + 10 + 4 + 1 + 4 + 1, kNearly);
  EXPECT_NEAR(milliseconds_of(tiers(8, 8, 0.5), 4, 4), 1 + 16 + 10 + 8 + 1 + 8 + 1, kNearly);
}

TEST(Tiers, SendWhatFindsNoRoomOnToTheFarOne) {
  // Two pages near by 4 ms, the other value far by 8, then two pages more far by 12. They come back
  // far ones first: 4 + 2 ms.
  const SwapLimits limits = tiers(8, 2, 0.5);
  EXPECT_NEAR(milliseconds_of(limits, 0, 4), 1 + 12 + 10 + 6 + 1 + 8 + 1, kNearly);
  const StepEstimate estimate = both_out(limits, 0, 4).estimate;
  EXPECT_EQ(estimate.near_peak_pages, 2U);
  EXPECT_EQ(estimate.written_pages, 8U);
  EXPECT_EQ(estimate.far_written_pages, 6U);
  EXPECT_EQ(estimate.far_read_pages, 6U);
  // The same by plan, and there is room.
  EXPECT_NEAR(milliseconds_of(tiers(8, 8, 0.5), 2, 4), 1 + 12 + 10 + 6 + 1 + 8 + 1, kNearly);
}

TEST(Tiers, PayTheFixedCostsOfAllThatTheyPass) {
  SwapLimits limits = tiers(8, 8, 0.5);
  limits.rates.read_fixed_seconds = 3e-3;
  limits.far->rates.read_fixed_seconds = 5e-3;
  // One read each, of one chunk.
  EXPECT_NEAR(milliseconds_of(limits, 0, 4), 33 + 3 + 3 + 5, kNearly);
}

TEST(Tiers, SlowDownWhatRunsBesideAllThatTheyPass) {
  SwapLimits limits = tiers(8, 8, 0.5);
  const auto page = static_cast<double>(limits.page_size.count());
  limits.rates.interference_seconds_per_byte = 1e-3 / page;
  limits.far->rates.interference_seconds_per_byte = 1e-2 / page;
  // All that moves is waited for: 4 pages either way near by, and as many far away.
  EXPECT_NEAR(milliseconds_of(limits, 0, 4), 33, kNearly);
  // With room for both, operator 1 runs beside the write-outs.
  StepTape ample = two_values();
  ample.ops[1].inside_peak_pages = 0;
  const auto slowdown_ms = [&] {
    return both_out(limits, 0, 4, ample).estimate.interference_seconds / kMillisecond;
  };
  EXPECT_NEAR(slowdown_ms(), 4 * 1 + 4 * (1 + 10), kNearly);
  limits.rates.checksum_seconds_per_byte = 1e-4 / page;
  EXPECT_NEAR(slowdown_ms(), 4 * 1.1 + 4 * (1.1 + 10), kNearly);
}

TEST(Tiers, TellWhereEachTransferGoes) {
  const SwapLimits limits = tiers(8, 2, 0.5);
  StepEvents events;
  const StepEstimate estimate = observe_step(two_values(), both_out(limits, 0, 4), limits, events);
  std::map<std::pair<Tier, Direction>, std::uint64_t> pages;
  for (const TransferEvent& event : events.transfers)
    pages[{event.tier, event.direction}] += event.pages;
  EXPECT_EQ((pages[{Tier::kNear, Direction::kWriteOut}]), 2U);
  EXPECT_EQ((pages[{Tier::kNear, Direction::kReadIn}]), 2U);
  EXPECT_EQ((pages[{Tier::kFar, Direction::kWriteOut}]), estimate.far_written_pages);
  EXPECT_EQ((pages[{Tier::kFar, Direction::kReadIn}]), estimate.far_read_pages);
}

TEST(Tiers, ShareTheLinkEvenlyWhereTheDiskIsFaster) {
  const SwapLimits limits = tiers(8, 8, 2.0);
  StepEvents events;
  observe_step(two_values(), both_out(limits, 0, 4), limits, events);
  for (const TransferEvent& event : events.transfers) {
    if (event.direction != Direction::kWriteOut) continue;
    EXPECT_NEAR(event.begin, 1 * kMillisecond, kNearly);
    EXPECT_NEAR(event.end, 9 * kMillisecond, kNearly);
  }
}

TEST(Tiers, FreeThePlaceOfCopiesWhoseValueDies) {
  const SwapLimits limits = tiers(8, 8, 0.5);
  SwapPlan plan = both_out(limits, 0, 0);
  for (PlannedSwap& swap : plan.swaps) swap.keeps_copy = true;
  const StepEstimate estimate = estimate_step(two_values(), plan, limits);
  EXPECT_EQ(estimate.far_written_pages, 0U);
  EXPECT_EQ(estimate.near_peak_pages, 8U);
}

TEST(Tiers, FreeThePlaceOfWriteOutsThatAreCancelled) {
  // Used and freed again while the first chunk is on its way.
  StepTape tape;
  tape.values = {{.pages = 4, .birth = 0, .death = 2}};
  tape.uses = {{.value = 0}};
  for (int i = 0; i < 3; ++i) tape.ops.push_back({.time = std::chrono::milliseconds(1)});
  tape.ops[0].inside_peak_pages = 4;
  tape.ops[2].use_count = 1;
  SwapChoices choices;
  choices.swaps = {{.pages = 4, .leave = 0, .fetch = 2, .needed = 2, .out_ops = 1}};
  choices.write_outs = choices.fetches = {0};
  choices.reserve_pages.assign(3, 0);
  const SwapPlan plan = restore_swaps(tape, choices, tiers(8, 8, 0.5));
  EXPECT_GT(plan.estimate.written_pages, 0U);
  EXPECT_EQ(plan.estimate.far_written_pages, 0U);
  EXPECT_EQ(plan.estimate.near_peak_pages, 4U);
}

TEST(Tiers, KeepHotValuesNearAndSendWhatWaitsLongestFar) {
  const StepTape tape = layer_chain(
      std::vector<ChainLayer>(16, {.output = 8, .inside = 0, .forward = 4000, .backward = 8000}));
  const SwapLimits limits = tiers(40, 32, 0.25);
  const SwapsAlone plan = plan_swaps(tape, limits);
  double pages[2] = {0, 0};
  double waits[2] = {0, 0};
  for (const PlannedSwap& swap : plan.swaps) {
    for (const bool is_far : {false, true}) {
      const std::uint32_t here = is_far ? swap.far_pages : swap.pages - swap.far_pages;
      pages[is_far ? 1 : 0] += here;
      waits[is_far ? 1 : 0] += here * static_cast<double>(swap.needed - swap.last_touch);
    }
  }
  ASSERT_GT(pages[0], 0.0);
  ASSERT_GT(pages[1], 0.0);
  EXPECT_GT(waits[1] / pages[1], 1.5 * waits[0] / pages[0]);
  // What waits at the same time fits.
  EXPECT_EQ(plan.estimate.near_peak_pages, 32U);
}

struct RandomStep {
  StepTape tape;
  SwapLimits limits;
};

/// Budgets between the smallest and the live peak, and so many pages of what exceeds them near.
RandomStep random_step(std::uint64_t seed, std::uint32_t near_pages, double disk_pages = 0.3) {
  RandomStep step;
  step.tape =
      random_tape(seed, {.ops = 40, .has_long_lives = seed % 3 == 0, .replayable_percent = 50});
  const std::uint32_t least = std::max(1U, smallest_budget(step.tape));
  const std::uint32_t most = std::max(least, live_peak(step.tape));
  step.limits = tiers(least + (most - least) * static_cast<std::uint32_t>(seed % 4) / 4, near_pages,
                      disk_pages);
  step.limits.refinement_ops = 2000;  // Quick, and the same for all.
  return step;
}

/// Most pages at once that were written to the near tier and are read from it again later, as far
/// as the transfers of one repetition tell. Copies that serve again are not all seen.
std::int64_t near_pages_seen(const StepEvents& events) {
  std::map<ValueIndex, std::vector<std::pair<double, std::int64_t>>> changes;
  for (const TransferEvent& event : events.transfers) {
    if (event.tier != Tier::kNear || event.pages == 0) continue;
    const bool is_write = event.direction == Direction::kWriteOut;
    changes[event.value].emplace_back(event.end,
                                      is_write ? event.pages : -std::int64_t{event.pages});
  }
  std::vector<std::pair<double, std::int64_t>> all;
  for (const auto& [value, own] : changes) {
    std::int64_t level = 0;
    for (const auto& [at, change] : own) {
      const std::int64_t next = std::max<std::int64_t>(0, level + change);
      all.emplace_back(at, next - level);
      level = next;
    }
    // What nobody reads again need not be there.
    if (level > 0) all.emplace_back(own.back().first, -level);
  }
  std::stable_sort(all.begin(), all.end());
  std::int64_t level = 0;
  std::int64_t most = 0;
  for (const auto& [at, change] : all) most = std::max(most, level += change);
  return most;
}

TEST(Tiers, NeverHoldMoreThanTheirCapacity) {
  std::uint64_t near_in_all = 0;
  std::uint64_t far_in_all = 0;
  std::int64_t seen_in_all = 0;
  const std::uint64_t seeds = tries<std::uint64_t>(60, 12);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const auto capacity = static_cast<std::uint32_t>(1 + seed % 13);
    const RandomStep step = random_step(seed, capacity);
    const double bound = bound_plan(step.tape, step.limits).step_seconds;
    for (const char* name : {"spillway", "demand", "swap-all", "capuchin"}) {
      const StepPlan plan = strategy_named(name).plan(step.tape, step.limits);
      StepEvents events;
      const StepEstimate estimate = observe_step(plan.steps.tape, plan.swaps, step.limits, events);
      EXPECT_TRUE(estimate.is_complete) << name << seed;
      EXPECT_LE(estimate.near_peak_pages, capacity) << name << seed;
      EXPECT_LE(estimate.peak_pages, step.limits.budget_pages) << name << seed;
      const std::int64_t seen = near_pages_seen(events);
      EXPECT_LE(seen, capacity) << name << seed;
      EXPECT_LE(seen, estimate.near_peak_pages) << name << seed;
      seen_in_all += seen;
      EXPECT_GE(estimate.step_seconds, bound * (1 - kNearly)) << name << seed;
      near_in_all += estimate.written_pages - estimate.far_written_pages;
      far_in_all += estimate.far_written_pages;
    }
  }
  EXPECT_GT(near_in_all, 0U);
  EXPECT_GT(far_in_all, 0U);
  EXPECT_GT(seen_in_all, static_cast<std::int64_t>(seeds));
}

void expect_equal(const StepPlan& one, const StepPlan& two, std::uint64_t seed) {
  EXPECT_EQ(one.swaps.estimate.step_seconds, two.swaps.estimate.step_seconds) << seed;
  EXPECT_EQ(one.swaps.estimate.stall_seconds, two.swaps.estimate.stall_seconds) << seed;
  EXPECT_EQ(one.swaps.estimate.written_pages, two.swaps.estimate.written_pages) << seed;
  EXPECT_EQ(one.swaps.estimate.read_pages, two.swaps.estimate.read_pages) << seed;
  EXPECT_EQ(one.swaps.estimate.forced_evictions, two.swaps.estimate.forced_evictions) << seed;
  EXPECT_EQ(one.replays.size(), two.replays.size()) << seed;
  EXPECT_EQ(one.swaps.swaps.size(), two.swaps.swaps.size()) << seed;
}

double bound_of(const RandomStep& step) { return bound_plan(step.tape, step.limits).step_seconds; }

TEST(Tiers, WithUnlimitedMemoryAreTheLinkAlone) {
  for (std::uint64_t seed = 0; seed < tries<std::uint64_t>(16, 5); ++seed) {
    RandomStep step = random_step(seed, kUnlimited);
    const StepPlan two = plan_step(step.tape, step.limits);
    const double bound = bound_of(step);
    EXPECT_EQ(two.swaps.estimate.far_written_pages, 0U) << seed;
    step.limits.far.reset();
    expect_equal(plan_step(step.tape, step.limits), two, seed);
    EXPECT_EQ(bound_of(step), bound) << seed;
  }
}

TEST(Tiers, WithoutMemoryAreTheDiskBehindTheLink) {
  for (std::uint64_t seed = 0; seed < tries<std::uint64_t>(16, 5); ++seed) {
    RandomStep step = random_step(seed, 0);
    step.limits.far->rates.read_fixed_seconds = 1e-4;
    const StepPlan two = plan_step(step.tape, step.limits);
    EXPECT_EQ(two.swaps.estimate.far_written_pages, two.swaps.estimate.written_pages) << seed;
    EXPECT_EQ(two.swaps.estimate.near_peak_pages, 0U) << seed;
    const double bound = bound_of(step);
    step.limits.rates = step.limits.far->rates;
    step.limits.far.reset();
    expect_equal(plan_step(step.tape, step.limits), two, seed);
    EXPECT_EQ(bound_of(step), bound) << seed;
  }
}

TEST(Tiers, AreHardlyEverSlowerWithMoreMemory) {
  double none = 0.0;
  double all = 0.0;
  for (std::uint64_t seed = 0; seed < tries<std::uint64_t>(16, 5); ++seed) {
    double last_bound = 1e9;
    double last = 1e9;
    for (const std::uint32_t capacity : {0U, 4U, 8U, 16U, 32U, kUnlimited}) {
      const RandomStep step = random_step(seed, capacity);
      const StepPlan plan = plan_step(step.tape, step.limits);
      const double time = plan.swaps.estimate.step_seconds;
      const double bound = bound_of(step);
      EXPECT_LE(bound, last_bound) << seed;
      EXPECT_LE(time, last * 1.1) << seed << ' ' << capacity;  // The search is not exact.
      last_bound = bound;
      last = std::min(last, time);
      if (capacity == 0) none += time;
      if (capacity == kUnlimited) all += time;
    }
  }
  EXPECT_LT(all, 0.9 * none);
}

TEST(Tiers, AreNoFasterThanTheBoundWhateverGoesWhere) {
  int binding = 0;
  const std::uint64_t seeds = tries<std::uint64_t>(60, 10);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const StepTape tape = random_tape(
        seed, {.ops = 7, .persistent = 1, .max_pages = 4, .max_uses = 2, .replayable_percent = 40});
    const std::uint32_t budget = std::max(1U, smallest_budget(tape));
    SwapLimits limits = tiers(budget, static_cast<std::uint32_t>(seed % 4), 0.25);
    const double bound = bound_plan(tape, limits, {.solver = clp()}).step_seconds;
    limits.refinement_ops = 500;
    SwapLimits link = limits;
    link.far.reset();
    if (bound > bound_plan(tape, link, {.solver = clp()}).step_seconds) ++binding;
    for (const bool is_ours : {false, true}) {
      StepPlan plan;
      try {
        plan = is_ours ? plan_step(tape, limits) : exhaustive_plan(tape, limits);
      } catch (const PlanError&) {
        continue;  // Too much to try.
      }
      const std::size_t swaps = std::min<std::size_t>(plan.swaps.swaps.size(), 8);
      for (std::size_t choice = 0; choice < std::size_t{1} << swaps; ++choice) {
        for (std::size_t i = 0; i < swaps; ++i) {
          PlannedSwap& swap = plan.swaps.swaps[i];
          swap.far_pages = (choice >> i & 1U) != 0 ? swap.pages : 0;
        }
        const double time = estimate_step(plan.steps.tape, plan.swaps, limits).step_seconds;
        EXPECT_GE(time, bound * (1 - kNearly)) << is_ours << ' ' << seed << ' ' << choice;
      }
    }
  }
  EXPECT_GT(binding, 5);
}

TEST(Tiers, RefuseSenselessRates) {
  SwapLimits limits = tiers(8, 4, 0.5);
  limits.far->rates.read = TransferRate(0.0);
  EXPECT_THROW(plan_step(two_values(), limits), ConfigError);
  limits = tiers(8, 4, 0.5);
  limits.far->rates.duplex_share = 2.0;
  EXPECT_THROW(plan_step(two_values(), limits), ConfigError);
}

}  // namespace
}  // namespace spillway::planner
