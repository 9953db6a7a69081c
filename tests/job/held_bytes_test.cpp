// What ranks hold at the moment of their peak, by class.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "even_jobs.h"
#include "spillway/base/error.h"
#include "spillway/schedule/weight_copies.h"
#include "support/stash_peaks.h"

namespace spillway::job {
namespace {

constexpr std::array kSchedules{"gpipe",
                                "1f1b",
                                "1f1b-capped:slots=2",
                                "interleaved",
                                "breadth-first",
                                "zb-h1",
                                "zb-v",
                                "v-min",
                                "chimera",
                                "gems-mast",
                                "gems-mast:parked",
                                "gems-mast:single-owner",
                                "gems-master",
                                "gems-master:parked",
                                "pipedream"};

/// Twelve layers of any sizes; buffers, working peaks and frozen layers among them.
JobRequest random_job(const char* schedule, std::mt19937& random) {
  const auto up_to = [&](std::uint64_t most) { return random() % (most + 1); };
  const NamedSchedule named = schedule_in(schedule);
  JobRequest request = even_job(12, 4, 8, named.generator->name);
  request.variant = named.variant;
  const std::uint64_t frozen = up_to(2);
  for (std::size_t i = 0; i < request.chain.layers.size(); ++i) {
    partition::ModelLayer& layer = request.chain.layers[i];
    layer.forward_seconds = 0.5 + 0.25 * static_cast<double>(up_to(4));
    layer.parameters = Bytes(up_to(6 * kMega));
    layer.static_ratio = 1.0 + static_cast<double>(up_to(3));
    layer.stash = Bytes(5 * kMega + up_to(20 * kMega));
    layer.buffers = Bytes(up_to(kMega));
    layer.working_peak = Bytes(up_to(8 * kMega));
    layer.update_peak = Bytes(up_to(30 * kMega));
    if (i < frozen) {
      layer.is_frozen = true;
      layer.static_ratio = 1.0;
      layer.stash = Bytes();
      layer.recompute.clear();
    }
  }
  request.reserved = Bytes(up_to(3 * kMega));
  request.update_seconds = 1.0;
  request.swap_rate = TransferRate(1e8);
  return request;
}

void expect_sums(const JobPlan& plan) {
  const schedule::WeightCopies copies(plan.actions);
  std::vector<Bytes> stashes;
  for (const planner_schedule::StageCosts& stage : plan.costs.stages)
    stashes.push_back(stage.stash);
  const std::vector<Bytes> most = stash_peaks(plan.actions, stashes, plan.costs.shares);
  for (std::uint32_t rank = 0; rank < plan.memory.size(); ++rank) {
    SCOPED_TRACE(rank);
    const HeldBytes& held = plan.memory[rank].held;
    EXPECT_EQ(held.all(), plan.memory[rank].peak);
    Bytes gradients;
    Bytes buffers;
    Bytes frozen;
    for (std::uint32_t copy = 0; copy < copies.size(); ++copy) {
      if (copies[copy].rank != rank) continue;
      const std::uint32_t stage = copies[copy].stage;
      gradients += plan.costs.stages[stage].gradients;
      buffers += plan.bytes_before[stage].buffers;
      frozen += plan.stages[stage].parameters - plan.costs.stages[stage].weights;
    }
    EXPECT_EQ(held.gradients, gradients);
    EXPECT_EQ(held.buffers, buffers);
    // A copy that leaves may still be under way when the next stash is there.
    EXPECT_LE(held.stash, most[rank] + *std::max_element(stashes.begin(), stashes.end()));
    bool moves_weights = false;
    for (const schedule::Action& action : plan.actions.ranks[rank])
      moves_weights |= action.kind == schedule::ActionKind::kSwapInWeights ||
                       action.kind == schedule::ActionKind::kSwapOutWeights ||
                       action.kind == schedule::ActionKind::kReceiveWeights;
    if (moves_weights) continue;
    const Bytes placed = held.weights - frozen + held.gradients + held.optimizer;
    EXPECT_EQ(placed, plan.timing.ranks[rank].at_begin);
  }
}

TEST(HeldBytes, SumUpToThePeakOfEachRank) {
  std::mt19937 random(7);
  std::uint32_t reduced = 0;
  std::uint32_t offloaded = 0;
  for (const char* schedule : kSchedules)
    for (int round = 0; round < 3; ++round) {
      SCOPED_TRACE(message("{}, {}", schedule, round));
      JobRequest request = random_job(schedule, random);
      const JobPlan free = planned(request);
      expect_sums(free);
      for (const JobMemoryReduction memory_reduction :
           {JobMemoryReduction::kStages, JobMemoryReduction::kIdleOffload}) {
        request.variant.memory_reduction = memory_reduction;
        request.device_memory = free.peak() * (80 + random() % 15) / 100;
        try {
          const JobPlan plan = planned(request);
          expect_sums(plan);
          reduced += plan.reduces_memory() ? 1U : 0U;
          offloaded += memory_reduction == JobMemoryReduction::kIdleOffload && plan.reduces_memory()
                           ? 1U
                           : 0U;
        } catch (const PlanError&) {
          // No room, which says nothing of what is held.
        }
      }
    }
  EXPECT_GE(reduced, kSchedules.size());
  EXPECT_GE(offloaded, kSchedules.size() / 3);
}

// Two layers of 4 MB a stage, whose second copies come from the host for their steps alone.
TEST(HeldBytes, AreThoseOfOneMoment) {
  JobRequest request = even_job(8, 4, 8, "gems-mast");
  request.swap_rate = TransferRate(1e9);
  const JobPlan two = planned(request);
  request.variant.second_copy = SecondCopy::kParked;
  const JobPlan parked = planned(request);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(two.memory[rank].held.weights, Bytes(16 * kMega));
    EXPECT_EQ(two.memory[rank].held.gradients, Bytes(16 * kMega));
    EXPECT_EQ(two.memory[rank].held.optimizer, Bytes(16 * kMega));
    EXPECT_GE(two.memory[rank].held.stash, Bytes(20 * kMega));
    EXPECT_EQ(parked.memory[rank].held.weights, Bytes(8 * kMega));  // While there are stashes.
    EXPECT_EQ(parked.memory[rank].held.stash, two.memory[rank].held.stash);
  }
}

// A step that takes more than all stashes, and than transients of layers.
TEST(HeldBytes, CountTheOptimizerAsATransient) {
  JobRequest request = even_job(4, 4, 4, "1f1b");
  request.update_seconds = 1.0;
  request.chain.layers[3].working_peak = Bytes(2 * kMega);
  request.chain.layers[3].update_peak = Bytes(90 * kMega);
  const HeldBytes held = planned(request).memory[3].held;
  EXPECT_EQ(held.working, Bytes(90 * kMega));
  EXPECT_EQ(held.stash, Bytes());
  EXPECT_EQ(held.weights, Bytes(4 * kMega));
}

TEST(HeldBytes, CountStagesThatAreOnlyUsedOnce) {
  JobRequest request = even_job(4, 4, 4, "1f1b");
  request.chain.layers[2].working_peak = Bytes(7 * kMega);
  request.reserved = Bytes(kMega);
  const JobPlan plan = planned(request);
  const HeldBytes& held = plan.memory[2].held;
  EXPECT_EQ(held.weights, Bytes(4 * kMega));
  EXPECT_EQ(held.gradients, Bytes(4 * kMega));
  EXPECT_EQ(held.optimizer, Bytes(4 * kMega));
  EXPECT_EQ(held.working, Bytes(7 * kMega));
  EXPECT_EQ(held.reserved, Bytes(kMega));
  EXPECT_EQ(held.stash, 2 * Bytes(10 * kMega) + 2 * Bytes(kMega));  // With their input.
}

}  // namespace
}  // namespace spillway::job
