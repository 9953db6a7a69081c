#include "spillway/planner/job/job_rebalance.h"

#include <gmock/gmock.h>

#include <cmath>

#include "even_jobs.h"
#include "spillway/base/error.h"
#include "support/golden_part.h"

namespace spillway::job {
namespace {

constexpr std::uint64_t kLayerBytes = 3 * 4 * kMega;  // Weights, gradient and one state.

JobRequest job_of(std::string_view schedule, std::uint32_t layers = 8,
                  std::uint32_t micro_batches = 4) {
  JobRequest request = even_job(layers, 4, micro_batches, schedule);
  request.device_memory = Bytes(400 * kMega);
  request.link = {1e-3, TransferRate(1e8)};
  return request;
}

/// As it comes out of a file.
JobFile stored(const JobRequest& request) {
  return parse_job_file(to_text(describe_job(planned(request), request.chain)), "job");
}

MeasuredModel model_of(const JobRequest& request) {
  return {request.chain, request.update_seconds, request.reserved};
}

/// The same with the layers of a range slower.
MeasuredModel drifted(const JobRequest& request, partition::LayerIndex first,
                      partition::LayerIndex last, double factor) {
  MeasuredModel model = model_of(request);
  for (partition::LayerIndex i = first; i <= last; ++i) {
    model.chain.layers[i].forward_seconds *= factor;
    model.chain.layers[i].backward_seconds *= factor;
  }
  return model;
}

TEST(JobRebalance, FindsTheStoredStepAgainForEverySchedule) {
  std::size_t compared = 0;
  for (const planner_schedule::ScheduleGenerator& generator :
       planner_schedule::schedule_generators()) {
    SCOPED_TRACE(generator.name);
    const JobRequest asked = job_of(generator.name);
    JobFile file;
    try {
      file = stored(asked);
    } catch (const ConfigError&) {
      continue;  // Not for these counts.
    }
    const RebalancedJob job = rebalance_job(request_of(file, "job", model_of(asked), "new"), 1.0);
    ASSERT_TRUE(job.before) << job.refusal;
    EXPECT_DOUBLE_EQ(job.before->step_seconds, file.step_seconds);
    EXPECT_EQ(job_fault(describe_job(job.plan, asked.chain)), std::nullopt);
    ++compared;
  }
  EXPECT_GT(compared, 12U);
}

TEST(JobRebalance, FindsStoredSwapsIdleOffloadAndLargerMicroBatchesAgain) {
  for (const char* text : {"1f1b", "gpipe:idle-offload", "gems-mast:single-owner"}) {
    SCOPED_TRACE(text);
    const NamedSchedule named = schedule_in(text);
    JobRequest asked = job_of(named.generator->name, 16);
    asked.variant = named.variant;
    asked.batch = 8;
    asked.swap_rate = TransferRate(1e8);
    asked.device_memory = planned(asked).peak() * 8 / 10;
    const JobFile file = stored(asked);
    EXPECT_EQ(file.batch, 8U);
    const RebalancedJob job = rebalance_job(request_of(file, "job", model_of(asked), "new"), 1.0);
    ASSERT_TRUE(job.before) << job.refusal;
    EXPECT_DOUBLE_EQ(job.before->step_seconds, file.step_seconds);
  }
}

TEST(JobRebalance, MovesLayersOffASlowRankWhereThatPays) {
  JobRequest asked = job_of("1f1b", 16, 16);
  const JobFile file = stored(asked);
  for (std::uint32_t k = 0; k < 4; ++k) ASSERT_EQ(file.stages[k].first, 4 * k);
  // Layers of 3 s on the first rank take 4.5 s: 18 s beside 12 s.
  const MeasuredModel model = drifted(asked, 0, 3, 1.5);
  const RebalancedJob job = rebalance_job(request_of(file, "job", model, "new"), 1000.0);
  ASSERT_TRUE(job.chosen);
  const RebalanceChoice& choice = job.choices[*job.chosen];
  // 13.5, 4.5 + 9 and twice 15 s, or as quick the other way round, with one layer for the last.
  EXPECT_NEAR(job.plan.seconds_per_micro_batch, 15.0, 0.1);
  EXPECT_EQ(choice.begins[1], 3U);
  EXPECT_LT(job.plan.step_seconds, job.before->step_seconds);
  Bytes bytes;
  for (const RankMove& move : choice.moves) {
    EXPECT_EQ(move.to_rank, move.from_rank + 1);
    EXPECT_EQ(move.bytes, Bytes(kLayerBytes) * (move.last_layer - move.first_layer + 1));
    EXPECT_NEAR(move.seconds, 1e-3 + static_cast<double>(move.bytes.count()) / 1e8, 1e-9);
    bytes += move.bytes;
  }
  EXPECT_EQ(bytes, choice.bytes);
  EXPECT_EQ(choice.rounds, 1U);
  EXPECT_NEAR(choice.move_seconds, 0.121, 1e-9);  // All links at the same time.
  const double gain = job.before->step_seconds - choice.step_seconds;
  EXPECT_EQ(*choice.pays_after(job.step_before()), std::floor(choice.move_seconds / gain) + 1);
  EXPECT_EQ(job_fault(describe_job(job.plan, asked.chain)), std::nullopt);
}

TEST(JobRebalance, StaysWhereTheStepsThatAreLeftDoNotPay) {
  JobRequest asked = job_of("1f1b", 16, 16);
  asked.device_memory = partition::kNoLimit;
  asked.link = {1e-3, TransferRate(1e7)};
  for (partition::ModelLayer& layer : asked.chain.layers)
    layer.parameters = Bytes(400 * kMega);  // 120 s.
  const JobFile file = stored(asked);
  const JobRequest request = request_of(file, "job", drifted(asked, 0, 3, 1.5), "new");
  const RebalancedJob long_run = rebalance_job(request, 1e6);
  ASSERT_TRUE(long_run.chosen);
  const double steps = *long_run.choices[*long_run.chosen].pays_after(long_run.step_before());
  EXPECT_GT(steps, 1.0);
  const RebalancedJob short_run = rebalance_job(request, 1.0);
  EXPECT_FALSE(short_run.chosen);
  EXPECT_EQ(short_run.plan.step_seconds, short_run.before->step_seconds);
  EXPECT_FALSE(short_run.choices.empty());
  // Nobody says when it ends: the quickest.
  const RebalancedJob endless = rebalance_job(request, std::nullopt);
  ASSERT_TRUE(endless.chosen);
  EXPECT_EQ(*endless.chosen, endless.choices.size() - 1);
}

TEST(JobRebalance, MovesBothCopiesOfStagesThatHaveTwo) {
  const JobRequest asked = job_of("gems-mast", 16);
  const RebalancedJob job = rebalance_job(
      request_of(stored(asked), "job", drifted(asked, 0, 3, 1.5), "new"), std::nullopt);
  ASSERT_TRUE(job.chosen);
  const RebalanceChoice& choice = job.choices[*job.chosen];
  ASSERT_EQ(choice.moves.size() % 2, 0U);
  for (const RankMove& move : choice.moves) {
    // Of the two stages in the middle each rank of the middle has copies.
    const int ranks = std::abs(static_cast<int>(move.from_rank) - static_cast<int>(move.to_rank));
    EXPECT_EQ(ranks, move.from_stage + move.to_stage == 3 ? 0 : 1);
    EXPECT_EQ(move.bytes == Bytes(0), ranks == 0);
    const auto is_mirrored = [&](const RankMove& other) {
      return other.first_layer == move.first_layer && other.from_rank == 3 - move.from_rank &&
             other.to_rank == 3 - move.to_rank && other.bytes == move.bytes;
    };
    EXPECT_EQ(std::count_if(choice.moves.begin(), choice.moves.end(), is_mirrored), 1);
  }
}

TEST(JobRebalance, MovesWithinARankAreFree) {
  // Stages 3 and 4 are both on the last of four ranks. The layers of one got slower, and those
  // before them have so many parameters that others move.
  JobRequest asked = job_of("zb-v", 16, 16);
  asked.device_memory = partition::kNoLimit;
  for (partition::LayerIndex i = 0; i < 6; ++i)
    asked.chain.layers[i].parameters = Bytes(400 * kMega);
  const RebalancedJob job = rebalance_job(
      request_of(stored(asked), "job", drifted(asked, 6, 7, 2.0), "new"), std::nullopt);
  std::size_t free = 0;
  for (const RebalanceChoice& choice : job.choices)
    for (const RankMove& move : choice.moves) {
      if (move.from_rank != move.to_rank) continue;
      EXPECT_EQ(move.bytes, Bytes(0));
      EXPECT_EQ(move.seconds, 0.0);
      ++free;
    }
  EXPECT_GT(free, 0U);
}

TEST(JobRebalance, MakesStagesFitAgain) {
  GoldenPart golden;
  JobRequest asked = job_of("1f1b", 16);
  for (partition::ModelLayer& layer : asked.chain.layers) layer.recompute.clear();
  asked.device_memory = planned(asked).peak();
  const JobFile file = stored(asked);
  MeasuredModel model = model_of(asked);
  for (partition::LayerIndex i = 0; i < 4; ++i) model.chain.layers[i].stash = Bytes(12 * kMega);
  const RebalancedJob job = rebalance_job(request_of(file, "job", model, "new"), 1.0);
  EXPECT_FALSE(job.before);
  golden.add(job.refusal);
  ASSERT_TRUE(job.chosen);
  EXPECT_EQ(job.choices[*job.chosen].pays_after(job.step_before()), 0.0);
  EXPECT_LE(job.plan.peak(), asked.device_memory);

  for (partition::LayerIndex i = 0; i < 16; ++i) model.chain.layers[i].stash = Bytes(20 * kMega);
  golden.add(refusal([&] { rebalance_job(request_of(file, "job", model, "new"), 1.0); }));
}

TEST(JobRebalance, RefusesOtherModelsAndOtherLists) {
  GoldenPart golden;
  const JobRequest asked = job_of("1f1b");
  const JobFile file = stored(asked);
  golden.add(refusal([&] { request_of(file, "job", model_of(job_of("1f1b", 9)), "new"); }));
  MeasuredModel model = model_of(asked);
  model.chain.layers[3].name = "other";
  golden.add(refusal([&] { request_of(file, "job", model, "new"); }));
  model = model_of(asked);
  model.chain.together = {{1, 2}};
  golden.add(refusal([&] { rebalance_job(request_of(file, "job", model, "new"), 1.0); }));
  JobFile other = file;
  other.actions.name = "gpipe:chunks=2";
  golden.add(refusal([&] { request_of(other, "job", model_of(asked), "new"); }));
  other.actions.name = "zb-v";
  golden.add(refusal([&] { request_of(other, "job", model_of(asked), "new"); }));
  other.actions.name = "gpipe";
  golden.add(refusal([&] { request_of(other, "job", model_of(asked), "new"); }));
  other.actions.name = file.actions.name + ":parked";
  golden.add(refusal([&] { request_of(other, "job", model_of(asked), "new"); }));
  const JobRequest two_copies = job_of("gems-mast");
  other = stored(two_copies);
  other.actions.name += ":parked";
  golden.add(refusal([&] { request_of(other, "job", model_of(two_copies), "new"); }));
}

}  // namespace
}  // namespace spillway::job
