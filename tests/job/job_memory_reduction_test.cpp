// How plans get into the memory of their devices, and what that costs.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "random_jobs.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/job_file.h"
#include "support/golden_part.h"
#include "support/sanitized.h"

namespace spillway::job {
namespace {

/// Nothing can be recomputed, so that stages have to swap.
JobRequest swapping_job(std::uint32_t layers, std::uint32_t ranks, std::uint32_t micro_batches,
                        std::string_view schedule) {
  JobRequest request = even_job(layers, ranks, micro_batches, schedule);
  for (partition::ModelLayer& layer : request.chain.layers) layer.recompute.clear();
  request.variant.memory_reduction = JobMemoryReduction::kStages;
  return request;
}

std::size_t count_of(const JobPlan& plan, schedule::ActionKind kind) {
  std::size_t count = 0;
  for (const auto& list : plan.actions.ranks)
    for (const schedule::Action& action : list) count += action.kind == kind ? 1U : 0U;
  return count;
}

// Waits were reckoned from the slower of compute and messages, and added to compute alone.
TEST(JobMemoryReduction, WaitsForSwapsAsLongAsTheyTakeWhereMessagesAreSlowToo) {
  JobRequest request = swapping_job(4, 2, 16, "1f1b");
  request.link.rate = TransferRate(1e5);      // 10 s a message, beside 6 s of compute.
  request.device_memory = Bytes(46 * kMega);  // 24 MB + 2 * 11 of 20 MB.
  request.swap_rate = TransferRate(9 * kMega / 16.0);
  const JobPlan plan = planned(request);
  EXPECT_EQ(plan.stages[0].swapped, Bytes(9 * kMega));
  EXPECT_EQ(plan.costs.stages[0].swapped, Bytes(9 * kMega));
  EXPECT_GE(plan.step_seconds, 16 * 16.0);
}

// Copies hid behind both directions of compute where one direction runs at a time.
TEST(JobMemoryReduction, HidesSwapsBehindOneDirectionWhereListsRunOneAtATime) {
  JobRequest request = swapping_job(4, 2, 4, "gpipe");
  request.device_memory = Bytes(64 * kMega);  // 24 MB + 4 * 10 of 20 MB, or of 21 behind a border.
  request.swap_rate = TransferRate(2.5e6);
  const JobPlan plan = planned(request);
  EXPECT_EQ(plan.stages[0].swapped, Bytes(10 * kMega));
  EXPECT_EQ(plan.stages[1].swapped, Bytes(11 * kMega));
  // Next forwards wait for room, 4 s behind the one before, 4.4 on rank 1, which gets its inputs
  // later and later; its first backward for what has just begun to leave, the others for 0.4 s.
  EXPECT_NEAR(plan.timing.ranks[0].exposed_swap_seconds, 3 * (4.0 - 2.0), 1e-6);
  EXPECT_NEAR(plan.timing.ranks[1].exposed_swap_seconds, (0.4 + 0.8 + 1.2) + 2.8 + 3 * 0.4, 1e-6);
  EXPECT_NEAR(plan.step_seconds, 2.0 + 4 * 4.4 + 4 * 4.4 + 4.0, 1e-6);
  EXPECT_DOUBLE_EQ(plan.timing.ranks[1].busy_seconds, 4 * 6.0);
}

// What stages swap was counted once per replica, though replicas run in turn.
TEST(JobMemoryReduction, CountsWhatHostsHoldOfReplicasInTurn) {
  JobRequest request = swapping_job(8, 4, 16, "gems-master");
  for (partition::ModelLayer& layer : request.chain.layers) layer.static_ratio = 1.0;
  request.device_memory = Bytes(31 * kMega);  // Two copies of 8 MB, and 15 of 20 or 21.
  request.swap_rate = TransferRate(1e9);
  const JobPlan plan = planned(request);
  EXPECT_EQ(plan.actions.replica_count(), 16U);
  EXPECT_EQ(plan.stages[0].swapped, Bytes(5 * kMega));
  for (std::uint32_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(plan.memory[rank].host, Bytes(6 * kMega)) << rank;
}

/// From 1 to 8 MB of parameters with Adam, which ranks of two directions hold in pairs.
JobRequest uneven_job(std::string_view schedule) {
  const NamedSchedule named = schedule_in(schedule);
  JobRequest request = swapping_job(8, 4, 8, named.generator->name);
  request.variant = named.variant;
  request.variant.memory_reduction = JobMemoryReduction::kStages;
  std::uint64_t size = 0;
  for (partition::ModelLayer& layer : request.chain.layers) {
    layer.parameters = Bytes(++size * kMega);
    layer.static_ratio = 4.0;
    layer.stash = Bytes(30 * kMega);
  }
  request.swap_rate = TransferRate(1e9);
  return request;
}

// Second copies had no gradients and no states, and were those of the stage itself: stages filled
// their devices with stashes for which there was no room, and the plan was thrown away.
TEST(JobMemoryReduction, FitsRanksThatHoldTwoStagesOfOtherSizes) {
  for (const char* schedule :
       {"gems-mast", "gems-mast:parked", "gems-mast:single-owner", "gems-master", "chimera"}) {
    JobRequest request = uneven_job(schedule);
    const JobPlan free = planned(request);
    for (const std::uint64_t percent : {60U, 70U, 80U, 90U, 95U}) {
      SCOPED_TRACE(message("{} at {} %", schedule, percent));
      request.device_memory = free.peak() * percent / 100;
      const JobPlan plan = planned(request);
      EXPECT_EQ(plan.memory_reduction, JobMemoryReduction::kStages);
      EXPECT_LE(plan.peak(), request.device_memory);
      EXPECT_TRUE(plan.reduces_memory());
      // 60 MB of a stage are copied in 0.06 s of 6.
      EXPECT_LE(plan.step_seconds, free.step_seconds * 1.25);
    }
  }
}

TEST(JobMemoryReduction, NamesTheBytesOfAllCopies) {
  for (const char* schedule : {"gems-mast", "gems-master", "chimera"}) {
    const JobPlan plan = planned(uneven_job(schedule));
    Bytes held;
    for (const planner_schedule::RankTiming& rank : plan.timing.ranks) held += rank.at_begin;
    Bytes named;
    for (const HeldBytes& stage : plan.bytes_before)
      named += stage.weights + stage.gradients + stage.optimizer;
    EXPECT_EQ(named, held) << schedule;
  }
  const JobPlan parked = planned(uneven_job("gems-mast:parked"));
  const JobPlan owned = planned(uneven_job("gems-mast:single-owner"));
  for (std::size_t k = 0; k < 4; ++k) {
    EXPECT_EQ(parked.bytes_before[k].weights, parked.stages[k].parameters) << k;
    EXPECT_EQ(parked.bytes_before[k].gradients, 2 * parked.stages[k].parameters) << k;
    EXPECT_EQ(parked.bytes_before[k].optimizer, 4 * parked.stages[k].parameters) << k;
    EXPECT_EQ(owned.bytes_before[k].weights, 2 * owned.stages[k].parameters) << k;
    EXPECT_EQ(owned.bytes_before[k].gradients, 2 * owned.stages[k].parameters) << k;
    EXPECT_EQ(owned.bytes_before[k].optimizer, 2 * owned.stages[k].parameters) << k;
  }
}

// Each stage of a rank got its share of the memory, and the whole of the largest working peak.
TEST(JobMemoryReduction, CountsWorkingPeaksOnceOnRanksOfSeveralStages) {
  for (const char* schedule : {"zb-v", "v-min", "interleaved", "interleaved:chunks=4"}) {
    const NamedSchedule named = schedule_in(schedule);
    JobRequest request = swapping_job(16, 4, 8, named.generator->name);
    request.variant.chunks = named.variant.chunks;
    request.chain.layers[1].working_peak = Bytes(200 * kMega);
    request.swap_rate = TransferRate(1e9);
    const JobPlan free = planned(request);
    const Bytes beside = free.peak() - Bytes(200 * kMega);
    for (const std::uint64_t percent : {70U, 80U, 90U}) {
      SCOPED_TRACE(message("{} at {} %", schedule, percent));
      request.device_memory = Bytes(200 * kMega) + beside * percent / 100;
      const JobPlan plan = planned(request);
      EXPECT_LE(plan.peak(), request.device_memory);
      EXPECT_TRUE(plan.reduces_memory());
      EXPECT_LE(plan.step_seconds, free.step_seconds * 1.25);
    }
  }
}

// A layer of more than half a device was refused where the rank's other stage left it room.
TEST(JobMemoryReduction, GivesAStageWhatTheOthersOfItsRankLeave) {
  GoldenPart golden;
  JobRequest request = swapping_job(8, 4, 8, "zb-v");
  request.chain.layers[1].parameters = Bytes(50 * kMega);
  request.swap_rate = TransferRate(1e9);
  request.device_memory = Bytes(190 * kMega);  // 150 + 12 on the rank of layer 1.
  EXPECT_GT(planned(even_job(8, 4, 8, "zb-v")).peak(), Bytes(60 * kMega));
  const JobPlan plan = planned(request);
  EXPECT_TRUE(plan.reduces_memory());
  EXPECT_LE(plan.peak(), request.device_memory);
  EXPECT_GT(plan.stages[1].memory, request.device_memory / 2);

  request.device_memory = Bytes(160 * kMega);
  golden.add(refusal([&] { planned(request); }));
}

// The search for an order refused layers before idle-time offload was tried.
TEST(JobMemoryReduction, LooksForIdleOffloadWhereNoOrderFitsTheStages) {
  JobRequest request = even_job(8, 4, 8, "zb-v");
  request.chain.may_reorder = true;
  request.chain.layers[1].parameters = Bytes(50 * kMega);
  for (partition::ModelLayer& layer : request.chain.layers) layer.recompute = {{1.0, Bytes()}};
  request.swap_rate = TransferRate(1e9);
  request.device_memory = planned(request).peak() * 95 / 100;
  request.variant.memory_reduction = JobMemoryReduction::kIdleOffload;
  EXPECT_LT(request.device_memory, Bytes(300 * kMega));  // Half of it has no room for 150 MB.
  EXPECT_LE(planned(request).peak(), request.device_memory);
}

TEST(JobMemoryReduction, TakesTheFasterKind) {
  std::set<JobMemoryReduction> kinds;
  for (const char* schedule : {"1f1b", "gpipe", "gems-mast", "chimera"})
    for (const double rate : {1e6, 4e6, 16e6})
      for (const std::uint64_t percent : {50U, 70U, 90U}) {
        SCOPED_TRACE(message("{} at {} bytes/s, {} %", schedule, rate, percent));
        JobRequest request = even_job(8, 4, 16, schedule);
        for (partition::ModelLayer& layer : request.chain.layers)
          layer.recompute = {{1.0, Bytes()}};
        request.swap_rate = TransferRate(rate);
        const JobPlan free = planned(request);
        request.device_memory = free.peak() * percent / 100;
        const auto seconds_by = [&](JobMemoryReduction memory_reduction) {
          JobRequest one = request;
          one.variant.memory_reduction = memory_reduction;
          try {
            const JobPlan plan = planned(one);
            EXPECT_EQ(plan.memory_reduction, memory_reduction);
            return plan.step_seconds;
          } catch (const PlanError&) {
            return std::numeric_limits<double>::infinity();  // Too little for it.
          }
        };
        const double fastest = std::min({seconds_by(JobMemoryReduction::kStages),
                                         seconds_by(JobMemoryReduction::kRecompute),
                                         seconds_by(JobMemoryReduction::kIdleOffload)});
        JobPlan plan;
        try {
          plan = planned(request);
        } catch (const PlanError&) {
          EXPECT_TRUE(std::isinf(fastest));
          continue;
        }
        kinds.insert(plan.memory_reduction);
        EXPECT_DOUBLE_EQ(plan.step_seconds, fastest);
        EXPECT_LE(plan.peak(), request.device_memory);
        EXPECT_GE(plan.step_seconds, free.step_seconds * (1 - 1e-9));
        const JobFile read = parse_job_file(to_text(describe_job(plan, request.chain)), "plan");
        EXPECT_EQ(job_fault(read), std::nullopt);
      }
  EXPECT_EQ(kinds.size(), 2U);
}

/// A step of a schedule; infinite where there is no plan.
double seconds_of(JobRequest request, std::string_view schedule) {
  request.schedule = schedule;
  try {
    return planned(request).step_seconds;
  } catch (const Error&) {
    return std::numeric_limits<double>::infinity();
  }
}

// Cuts reckon with more swaps than action lists leave time for, so that a link to the host made
// plans slower, and a host with little room made them impossible.
TEST(JobMemoryReduction, IsNoSlowerForALinkToTheHost) {
  std::size_t reduced = 0;
  for (std::uint32_t seed = 1; seed <= tries(60U, 10U); ++seed) {
    JobRequest without = random_job(seed);
    without.swap_rate = TransferRate(0.0);
    without.micro_batches = without.batch;
    for (const char* schedule : {"1f1b", "gpipe", "zb-h2", "interleaved"}) {
      without.device_memory = partition::kNoLimit;
      const double free = seconds_of(without, schedule);
      if (std::isinf(free)) continue;
      without.schedule = schedule;
      without.device_memory = planned(without).peak() * 6 / 10;
      const double alone = seconds_of(without, schedule);
      if (std::isinf(alone)) continue;
      ++reduced;
      for (const double rate : {1e6, 2e7}) {
        JobRequest with = without;
        with.swap_rate = TransferRate(rate);
        with.host_memory = Bytes(10 * kMega);
        EXPECT_LE(seconds_of(with, schedule), alone * (1 + 1e-9))
            << seed << ' ' << schedule << ' ' << rate;
      }
    }
  }
  EXPECT_GT(reduced, tries(25U, 3U));
}

// Beyond 1,024 passes idle-time offload was skipped, and the plan did not say so.
TEST(JobMemoryReduction, LooksForIdleOffloadInLongListsAndSaysWhereItDoesNot) {
  GoldenPart golden;
  JobRequest request = even_job(8, 8, 256, "gpipe");
  request.swap_rate = TransferRate(1e9);
  request.device_memory = planned(request).peak() / 2;
  request.variant.memory_reduction = JobMemoryReduction::kIdleOffload;
  const JobPlan by_offload = planned(request);
  EXPECT_EQ(by_offload.memory_reduction, JobMemoryReduction::kIdleOffload);
  EXPECT_LE(by_offload.peak(), request.device_memory);
  for (const partition::StageEstimate& stage :
       by_offload.stages) {  // As they come out, not as they were cut.
    EXPECT_LE(stage.memory, request.device_memory);
    EXPECT_GT(stage.raw_memory, request.device_memory);
  }

  request = even_job(8, 8, 4096, "1f1b");
  request.swap_rate = TransferRate(1e9);
  request.device_memory = Bytes(70 * kMega);  // Rank 0 would hold 92 MB.
  golden.add(planned(request).not_tried);
  request.variant.memory_reduction = JobMemoryReduction::kIdleOffload;
  golden.add(refusal([&] { planned(request); }));
  request.variant.memory_reduction.reset();
  request.micro_batches = 16;
  EXPECT_EQ(planned(request).not_tried, "");
}

TEST(JobMemoryReduction, NamesBytesByClass) {
  JobRequest request = even_job(8, 4, 8, "1f1b");
  request.reserved = Bytes(kMega);
  for (partition::ModelLayer& layer : request.chain.layers) layer.working_peak = Bytes(3 * kMega);
  request.chain.borders.push_back({0, {7}, Bytes(2 * kMega)});  // Relayed by stages 1 and 2.
  request.device_memory = Bytes(70 * kMega);
  request.partitioner = "even";
  request.variant.memory_reduction = JobMemoryReduction::kStages;
  const JobPlan plan = planned(request);
  bool reduces_memory = false;
  for (std::size_t k = 0; k < plan.stages.size(); ++k) {
    const HeldBytes& before = plan.bytes_before[k];
    EXPECT_EQ(before.weights, plan.stages[k].parameters) << k;
    EXPECT_EQ(before.gradients, plan.stages[k].parameters) << k;
    EXPECT_EQ(before.optimizer, plan.stages[k].parameters) << k;
    EXPECT_EQ(before.working, Bytes(3 * kMega)) << k;
    EXPECT_EQ(before.relayed, Bytes(k == 1 || k == 2 ? 2 * kMega : 0)) << k;
    EXPECT_EQ(before.reserved, Bytes(kMega)) << k;
    EXPECT_EQ(before.all(), plan.stages[k].raw_memory) << k;
    // Stashes are rounded down to bytes, of each micro-batch.
    EXPECT_LE(plan.bytes_after[k].all(), plan.stages[k].memory) << k;
    EXPECT_GE(plan.bytes_after[k].all() + Bytes(8), plan.stages[k].memory) << k;
    EXPECT_EQ(plan.bytes_after[k].weights, before.weights) << k;
    reduces_memory = reduces_memory || plan.bytes_after[k].stash < before.stash;
  }
  EXPECT_TRUE(reduces_memory);
}

TEST(SecondCopy, IsParkedOnTheHost) {
  GoldenPart golden;
  JobRequest request = even_job(8, 4, 8, "gems-mast");
  request.swap_rate = TransferRate(1e9);
  const JobPlan kept = planned(request);
  request.variant.second_copy = SecondCopy::kParked;
  const JobPlan parked = planned(request);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    // One of two copies of two layers, while stashes are at their most.
    EXPECT_EQ(parked.memory[rank].peak + Bytes(8 * kMega), kept.memory[rank].peak) << rank;
    EXPECT_EQ(parked.memory[rank].host, Bytes(16 * kMega)) << rank;
  }
  const JobFile read = parse_job_file(to_text(describe_job(parked, request.chain)), "plan");
  EXPECT_EQ(job_fault(read), std::nullopt);
  EXPECT_EQ(read.actions.name, "gems-mast:parked");
  request.swap_rate = TransferRate(0.0);
  golden.add(refusal([&] { planned(request); }));
  request.swap_rate = TransferRate(1e9);
  request.schedule = "1f1b";
  golden.add(refusal([&] { planned(request); }));
}

TEST(SecondCopy, HasOneOwner) {
  JobRequest request = even_job(8, 4, 8, "gems-mast");
  const JobPlan both = planned(request);
  request.variant.second_copy = SecondCopy::kSingleOwner;
  const JobPlan one = planned(request);
  EXPECT_EQ(count_of(both, schedule::ActionKind::kStep), 8U);
  EXPECT_EQ(count_of(one, schedule::ActionKind::kStep), 4U);
  EXPECT_LT(one.peak(), both.peak());  // States of half as many copies.
  const JobFile read = parse_job_file(to_text(describe_job(one, request.chain)), "plan");
  EXPECT_EQ(job_fault(read), std::nullopt);
}

TEST(SecondCopy, NeverBeatsTheChooserWhereMemoryIsInTheWay) {
  JobRequest request = even_job(4, 4, 8);
  for (partition::ModelLayer& layer : request.chain.layers) {
    layer.recompute.clear();
    layer.stash = Bytes(40 * kMega);
  }
  request.swap_rate = TransferRate(1e9);
  request.data_parallel = 1;
  JobRequest named = request;
  named.schedule = "gems-mast";
  named.variant.second_copy = SecondCopy::kParked;
  request.device_memory = planned(named).peak();
  named.device_memory = request.device_memory;
  const JobPlan parked = planned(named);
  EXPECT_LE(search_job(request)->plan.step_seconds, parked.step_seconds * (1 + 1e-9));
  EXPECT_FALSE(parked.reduces_memory());
  std::vector<std::string> tried;
  trials_of(request, [&](const JobChoice& choice) {
    if (choice.generator->name == "gems-mast") tried.push_back(to_string(choice.variant));
    JobAttempt attempt;
    attempt.refusal = "it is too large";
    return attempt;
  });
  EXPECT_THAT(tried, ::testing::Contains("parked"));
}

}  // namespace
}  // namespace spillway::job
