#include "spillway/planner/job/job_plan.h"

#include <gmock/gmock.h>

#include "even_jobs.h"
#include "spillway/base/error.h"
#include "support/golden_part.h"

namespace spillway::job {
namespace {

TEST(JobPlan, OfEqualStagesHasTheBubbleOfTheClosedForm) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    const JobPlan plan = planned(even_job(8, 4, 8, schedule));
    // (p - 1) / (m + p - 1) with p = 4, m = 8; two layers of 3 s per stage.
    EXPECT_NEAR(plan.timing.bubble, 3.0 / 11.0, 1e-12) << schedule;
    EXPECT_NEAR(plan.step_seconds, 66.0, 1e-9) << schedule;
    EXPECT_EQ(plan.stages.size(), 4U);
  }
}

TEST(JobPlan, CountsTheMemoryOfEachRank) {
  JobRequest request = even_job(8, 4, 8, "1f1b");
  request.reserved = Bytes(kMega);
  for (partition::ModelLayer& layer : request.chain.layers) layer.working_peak = Bytes(3 * kMega);
  const JobPlan plan = planned(request);
  ASSERT_EQ(plan.memory.size(), 4U);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    // Two layers; 4 - rank micro-batches; behind the first stage, their input of 1 MB each, too.
    const std::uint64_t stash = 20 + (rank > 0 ? 1 : 0);
    EXPECT_EQ(plan.memory[rank].fixed, Bytes(4 * kMega)) << rank;
    EXPECT_EQ(plan.memory[rank].peak, Bytes((2 * 12 + (4 - rank) * stash + 4) * kMega)) << rank;
  }
}

// Plans for a model whose optimizer states dominate promised less than the update took.
TEST(JobPlan, CountsTransientsOfTheUpdateWhereTheyAreMore) {
  JobRequest request = even_job(8, 4, 1, "1f1b");
  for (partition::ModelLayer& layer : request.chain.layers) layer.working_peak = Bytes(3 * kMega);
  const JobPlan plan = planned(request);
  const Bytes stash(20 * kMega);
  EXPECT_EQ(plan.memory[0].peak, Bytes((2 * 12 + 3) * kMega) + stash);
  request.chain.layers[1].update_peak = stash;  // Less than that and the working peak.
  EXPECT_EQ(planned(request).memory[0].peak, plan.memory[0].peak);
  request.chain.layers[1].update_peak = stash + Bytes(5 * kMega);
  EXPECT_EQ(planned(request).memory[0].peak, plan.memory[0].peak + Bytes(2 * kMega));
  EXPECT_EQ(planned(request).memory[1].peak, plan.memory[1].peak);
}

// A rank with two stages keeps free what the larger one needs.
TEST(JobPlan, CountsTransientsOfTheUpdateOncePerRank) {
  for (const partition::LayerIndex updated : {3U, 4U}) {
    JobRequest request = even_job(8, 4, 1, "zb-v");
    request.chain.layers[3].working_peak = Bytes(100 * kMega);
    request.chain.layers[updated].update_peak = Bytes(1000 * kMega);
    const JobPlan plan = planned(request);
    ASSERT_EQ(plan.actions.rank_of(0, 3), plan.actions.rank_of(0, 4));
    EXPECT_EQ(plan.memory[plan.actions.rank_of(0, 3)].held.working, Bytes(1000 * kMega)) << updated;
  }
}

TEST(JobPlan, GroupsShareTheMicroBatches) {
  JobRequest request = even_job(8, 8, 8, "1f1b");
  request.data_parallel = 2;
  const JobPlan plan = planned(request);
  EXPECT_EQ(plan.actions.rank_count(), 4U);
  EXPECT_EQ(plan.actions.data_parallel, 2U);
  EXPECT_NEAR(plan.step_seconds, (4 + 3) * 6.0, 1e-9);  // Reductions take no time here.
  request.link.rate = TransferRate(1e6);
  EXPECT_GT(planned(request).step_seconds, plan.step_seconds + 8.0);  // 8 MB of gradients.
}

TEST(JobPlan, StaysWithinItsDevicesBySwapsAndRecomputation) {
  GoldenPart golden;
  JobRequest request = even_job(8, 4, 8, "1f1b");
  const JobPlan free = planned(request);
  request.device_memory = Bytes(70 * kMega);  // Rank 0 would hold 104 MB.
  const JobPlan tight = planned(request);
  EXPECT_LE(tight.peak(), request.device_memory);
  EXPECT_GT(tight.step_seconds, free.step_seconds);
  EXPECT_GT(tight.stages[0].recompute_seconds, 0.0);
  EXPECT_EQ(tight.memory[0].host, Bytes(0));
  request.swap_rate = TransferRate(10e6);  // 20 MB per stage take 2 s of 6.
  const JobPlan swapped = planned(request);
  EXPECT_LE(swapped.peak(), request.device_memory);
  EXPECT_NEAR(swapped.step_seconds, free.step_seconds, 1e-6);
  EXPECT_GT(swapped.memory[0].host, Bytes(0));
  request.host_memory = swapped.memory[0].host - Bytes(1);
  EXPECT_EQ(planned(request).memory[0].host, Bytes(0)) << "it recomputes instead";
  for (partition::ModelLayer& layer : request.chain.layers) layer.recompute.clear();
  request.variant.memory_reduction = JobMemoryReduction::kStages;
  golden.add(refusal([&] { planned(request); }));
}

TEST(JobPlan, SharesARankAmongItsStages) {
  const JobRequest request = even_job(8, 4, 8, "interleaved");
  const JobPlan plan = planned(request);
  EXPECT_EQ(plan.stages.size(), 8U);
  EXPECT_NEAR(plan.timing.bubble, 3.0 / (2 * 8 + 3), 1e-9);
  EXPECT_LT(plan.step_seconds, planned(even_job(8, 4, 8, "1f1b")).step_seconds);
}

TEST(JobPlan, GivesTheOptimizerToTheStagesByTheirParameters) {
  JobRequest request = even_job(8, 4, 8, "gpipe");
  request.update_seconds = 8.0;
  EXPECT_NEAR(planned(request).step_seconds, 66.0 + 2.0, 1e-9);
}

TEST(JobPlan, RefusesWhatCannotBe) {
  GoldenPart golden;
  const auto reason = [](const JobRequest& request) { return refusal([&] { planned(request); }); };
  golden.add(reason(even_job(3, 4, 8, "1f1b")));
  // Before action lists are made, which would be too long.
  golden.add(reason(even_job(3, 60'000, 60'000, "1f1b")));
  golden.add(reason(even_job(7, 4, 8, "interleaved")));
  golden.add(reason(even_job(8, 4, 8, "1f2b")));
  golden.add(reason(even_job(9, 3, 8, "chimera")));

  JobRequest request = even_job(8, 4, 8, "1f1b");
  request.partitioner = "evn";
  golden.add(reason(request));
  request = even_job(8, 4, 8, "1f1b");
  request.data_parallel = 3;
  golden.add(reason(request));
  request = even_job(8, 4, 6, "1f1b");
  request.data_parallel = 4;
  golden.add(reason(request));
  request = even_job(8, 4, 6, "1f1b");
  request.batch = 8;
  golden.add(reason(request));
  request = even_job(8, 4, 0, "1f1b");
  request.batch = 8;
  golden.add(reason(request));
  request = even_job(8, 4, 6, "1f1b");
  request.data_parallel = 4;
  request.batch = 12;  // The work of a step stays as it is.
  golden.add(reason(request));
  golden.add(reason(even_job(8, 4, 0)));
  golden.add(reason(even_job(8, 0, 8)));
  request = even_job(8, 4, 8);
  request.chain.ties = {{}};
  golden.add(reason(request));
  request = even_job(8, 4, 8, "1f1b");
  request.variant.slots = 3;
  golden.add(reason(request));
  request = even_job(8, 4, 8, "1f1b");
  request.chain.layers[5].backward_seconds = -1.0;
  golden.add(reason(request));
  request.chain.layers[5].backward_seconds = partition::kNotMeasured;
  golden.add(reason(request));

  request = even_job(8, 4, 8, "1f1b");
  request.chain.layers[2].parameters = Bytes(1000 * kMega);
  request.device_memory = Bytes(100 * kMega);
  golden.add(reason(request));
}

TEST(JobPlan, TellsWhichStageOfGivenCutsIsTooFull) {
  GoldenPart golden;
  JobRequest request = even_job(8, 4, 8, "1f1b");
  for (partition::ModelLayer& layer : request.chain.layers) layer.recompute.clear();
  request.chain.layers[0].parameters = Bytes(10 * kMega);
  request.device_memory = Bytes(120 * kMega);
  request.partitioner = "even";  // 42 MB + 4 * 20 MB on the first stage.
  golden.add(refusal([&] { planned(request); }));
  request.partitioner = "spillway";
  EXPECT_LE(planned(request).peak(), request.device_memory);
}

/// The refusal of a candidate of `ranks` pipeline ranks.
Refusal refusal_of(const JobRequest& request, std::string_view schedule,
                   const JobVariant& variant = {}) {
  PlanMemo memo;
  const JobChoice choice{&planner_schedule::schedule_generator_named(schedule), 1, variant};
  const auto plan =
      plan_choice(request, partition::partitioner_named(request.partitioner), choice, memo);
  EXPECT_FALSE(plan) << schedule;
  return plan.refusal();
}

TEST(PlanChoice, ReturnsWhyACandidateHasNoPlan) {
  using Cause = Refusal::Cause;
  const JobRequest request = even_job(8, 4, 8);
  EXPECT_EQ(refusal_of(even_job(8, 4, 7), "chimera").cause, Cause::kRequest);
  EXPECT_EQ(refusal_of(even_job(3, 4, 8), "1f1b").cause, Cause::kRequest);
  EXPECT_EQ(refusal_of(request, "pipedream").cause, Cause::kPlan);
  EXPECT_EQ(refusal_of(request, "gems-mast", {.second_copy = SecondCopy::kParked}).cause,
            Cause::kPlan);
  JobRequest tight = request;
  tight.device_memory = Bytes(30 * kMega);
  for (partition::ModelLayer& layer : tight.chain.layers) layer.recompute.clear();
  const Refusal lacking = refusal_of(tight, "1f1b");
  EXPECT_EQ(lacking.cause, Cause::kRoom);
  // Least memory: 1, 2, 2 and 3 layers; rank 1 holds three stashes, each with its input.
  EXPECT_EQ(lacking.rank, 1U);
  EXPECT_EQ(lacking.needed, Bytes((24 + 3 * 21) * kMega));
  EXPECT_THROW(planner_schedule::raise(lacking), PlanError);
  EXPECT_THROW(planner_schedule::raise({.cause = Cause::kRequest}), ConfigError);
  EXPECT_THROW(planner_schedule::raise({.cause = Cause::kPruned}), PlanError);
}

// Any error in a partitioner read as "does not fit", and the search went on without a word.
TEST(PlanChoice, TakesNoFaultForAnAnswer) {
  GoldenPart golden;
  JobRequest request = even_job(8, 4, 8, "1f1b");
  request.device_memory = planned(request).peak() * 80 / 100;
  const JobChoice choice{&planner_schedule::schedule_generator_named("1f1b"), 1};
  PlanMemo memo;
  using Found = std::optional<partition::Cuts>;
  const partition::Partitioner refusing{
      "refusing", "", "", partition::Reading::kAsPublished,
      [](const partition::SegmentCosts&) -> Found { return std::nullopt; }};
  golden.add(plan_choice(request, refusing, choice, memo).refusal().sentence);
  const partition::Partitioner faulty{
      "faulty", "", "", partition::Reading::kAsPublished,
      [](const partition::SegmentCosts&) -> Found { throw PlanError("a fault"); }};
  EXPECT_THROW(plan_choice(request, faulty, choice, memo), PlanError);
  const partition::Partitioner wrong{"wrong", "", "", partition::Reading::kAsPublished,
                                     [](const partition::SegmentCosts&) -> Found {
                                       return partition::Cuts{0, 1};
                                     }};
  EXPECT_THROW(plan_choice(request, wrong, choice, memo), PlanError);
}

}  // namespace
}  // namespace spillway::job
