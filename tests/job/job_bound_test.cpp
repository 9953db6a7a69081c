#include "spillway/planner/job/job_bound.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <vector>

#include "random_jobs.h"
#include "spillway/base/error.h"

namespace spillway::job {
namespace {

constexpr double kDown = 1 - 1e-9;
constexpr std::uint32_t kSeeds = 150;

/// A schedule with or without more than its usual variant.
JobVariant any_variant(const planner_schedule::ScheduleGenerator& generator, Draw& draw) {
  JobVariant variant;
  if (draw.one_in(2)) return variant;
  if (generator.stages_per_rank == planner_schedule::StagesPerRank::kAsRequested)
    variant.chunks = draw.among(1, 3);
  if (generator.name == "1f1b-capped") variant.slots = draw.among(1, 4);
  if (generator.name == "gems-basic" || generator.name == "gems-master")
    variant.replicas = draw.among(1, 4);
  if (draw.one_in(3)) variant.second_copy = SecondCopy::kSingleOwner;
  if (draw.one_in(6)) variant.second_copy = SecondCopy::kParked;
  return variant;
}

/// A random job with all that ranks hold beside stashes, which are small, on devices about as large
/// as the bound.
JobRequest fuller_job(std::uint32_t seed) {
  Draw draw(seed);
  JobRequest request = random_job(seed);
  std::vector<partition::ModelLayer>& layers = request.chain.layers;
  for (partition::ModelLayer& layer : layers) {
    layer.stash = layer.stash / 100;
    layer.parameters = layer.parameters * draw.among(1, 4);
    layer.static_ratio = 1U << draw.among(0, 2);
    layer.buffers = Bytes(draw.among(0, 6) * kMega);
    layer.working_peak = Bytes(draw.among(0, 12) * kMega);
  }
  const partition::LayerIndex first = draw.among(0, static_cast<std::uint32_t>(layers.size()) - 1);
  partition::TiedWeights tie{{}, layers[first].parameters};
  for (partition::LayerIndex i = 0; i < layers.size(); ++i) {
    if (layers[i].is_frozen != layers[first].is_frozen || (i != first && draw.one_in(3))) continue;
    layers[i].static_ratio = layers[first].static_ratio;
    tie.layers.push_back(i);
    tie.bytes = std::min(tie.bytes, layers[i].parameters);
  }
  if (tie.layers.size() > 1) request.chain.ties = {tie};
  for (partition::BorderTensor& border : request.chain.borders) border.bytes = border.bytes / 100;
  request.reserved = Bytes(draw.among(0, 3) * kMega);
  request.device_memory = memory_bound(request) * draw.among(95, 300) / 100;
  return request;
}

/// Holds the bounds of a request against one plan of each schedule.
class PlansOfEachSchedule {
 public:
  void add(JobRequest request, std::uint32_t seed) {
    request.micro_batches = request.batch;
    const double any = job_bound(request);
    const Bytes least_memory = memory_bound(request);
    Draw draw(seed);
    for (const planner_schedule::ScheduleGenerator& generator :
         planner_schedule::schedule_generators()) {
      JobRequest named = request;
      named.schedule = generator.name;
      named.cut_effort = kFirstLook;  // Partitioners are drawn.
      JobChoice choice{&generator, draw.one_in(3) ? draw.among(1, 4) : 1,
                       any_variant(generator, draw)};
      named.variant = choice.variant;
      const partition::Partitioner& partitioner =
          draw.one_in(2)
              ? partition::partitioners()[draw.among(0, partition::partitioners().size() - 1)]
              : partition::partitioner_named("spillway");
      const JobAttempt made = tried(named, partitioner, choice);
      if (!made.is_possible()) continue;
      ++compared[generator.name];
      EXPECT_GE(made.step_seconds, any * kDown) << seed << " " << generator.name;
      EXPECT_GE(made.step_seconds, pipeline_bound(named, choice) * kDown)
          << seed << " " << schedule_text(generator.name, choice.variant) << " in "
          << choice.data_parallel << " data-parallel replicas with cuts by " << partitioner.name;
      EXPECT_GE(pipeline_bound(named, choice), any * kDown) << seed << " " << generator.name;
      EXPECT_GE(made.peak, least_memory) << seed << " " << generator.name;
      if (made.peak < least_memory * 110 / 100) ++near_least_memory;
    }
  }

  std::map<std::string_view, int> compared;
  int near_least_memory = 0;
};

TEST(PipelineBound, IsBelowAllThatTheScheduleReaches) {
  PlansOfEachSchedule plans;
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) plans.add(random_job(seed), seed);
  for (const planner_schedule::ScheduleGenerator& generator :
       planner_schedule::schedule_generators())
    EXPECT_GT(plans.compared[generator.name], 5) << generator.name;
}

TEST(MemoryBound, IsBelowThePeaksOfAllThatRanksHold) {
  PlansOfEachSchedule plans;
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) plans.add(fuller_job(seed), seed);
  EXPECT_GT(plans.near_least_memory, 100);
}

// Of equal layers, without messages, these schedules take just that long, or nearly.
TEST(PipelineBound, IsNearWhatEvenPipelinesTake) {
  const auto gap = [](std::string_view schedule, std::uint32_t micro_batches) {
    const JobRequest request = even_job(4, 4, micro_batches, schedule);
    return planned(request).step_seconds / job_bound(request) - 1.0;
  };
  for (const std::string_view exact : {"gpipe", "gems-basic", "gems-mast", "gems-master"}) {
    EXPECT_NEAR(gap(exact, 4), 0.0, 1e-9) << exact;
    EXPECT_NEAR(gap(exact, 8), 0.0, 1e-9) << exact;
  }
  EXPECT_LT(gap("1f1b", 8), 0.2);  // And 0.375 by its work alone.
  EXPECT_LT(gap("1f1b", 64), 0.03);
}

// Of layers with states and transients, on ranks that keep no stash: near the peak of such a plan.
TEST(MemoryBound, IsOfTheLargestLayerOrAnEvenShare) {
  JobRequest request = even_job(4, 2, 2);
  for (partition::ModelLayer& layer : request.chain.layers) {
    layer.parameters = 100_MiB;
    layer.static_ratio = 4.0;
    layer.working_peak = Bytes();
  }
  request.reserved = 1_MiB;
  const auto is_near = [&](Bytes size) {
    return memory_bound(request) <= size && memory_bound(request) + 1_KiB > size;
  };
  EXPECT_TRUE(is_near(2 * 400_MiB + 1_MiB)) << memory_bound(request);
  request.swap_rate = TransferRate(1e9);  // Weights may be parked.
  EXPECT_TRUE(is_near(2 * 300_MiB + 1_MiB)) << memory_bound(request);
  request.chain.layers[2].working_peak = 700_MiB;
  EXPECT_TRUE(is_near(1101_MiB)) << memory_bound(request);
}

// What is tied and in one stage is there once; of a frozen layer only its weights.
TEST(MemoryBound, IsWhatOneRankHoldsOfTiedAndFrozenLayers) {
  JobRequest request = even_job(4, 1, 2, "1f1b");
  for (partition::ModelLayer& layer : request.chain.layers) layer.stash = Bytes();
  request.chain.borders.clear();
  request.chain.layers[0].is_frozen = true;
  request.chain.layers[1].buffers = 3_MiB;
  request.chain.ties = {{{1, 3}, Bytes(3 * kMega)}};
  request.reserved = 1_MiB;
  const Bytes bound = memory_bound(request);
  // 4 MB frozen, three layers of 4 MB with gradients and a state, 3 MB of which one holds for two.
  EXPECT_EQ(bound + Bytes(4 * 4), Bytes((4 + 3 * 12 - 3 * 3) * kMega) + 4_MiB);
  EXPECT_EQ(planned(request).peak(), bound + Bytes(4 * 4));
  request.chain.layers[1].is_frozen = request.chain.layers[3].is_frozen = true;
  EXPECT_EQ(planned(request).peak(), memory_bound(request) + Bytes(4 * 4));
  request.swap_rate = TransferRate(1e9);  // What is frozen is not parked.
  EXPECT_EQ(memory_bound(request) + Bytes(4 * 4), Bytes((3 * 4 - 3 + 8) * kMega) + 4_MiB);
}

TEST(JobBound, IsTheLargestOfWorkWayAndTurns) {
  JobRequest request = even_job(4, 4, 8);
  EXPECT_DOUBLE_EQ(job_bound(request), 4 * 3.0 * 8 / 4);  // Work on four ranks.
  request.micro_batches = 1;
  // One on its way: weight gradients of the first layer alone.
  EXPECT_DOUBLE_EQ(job_bound(request), 4 * 2.0 + 1.0);
  request.micro_batches = 8;
  request.data_parallel = 1;
  // 12 s, on two ranks at most, behind two forwards.
  request.chain.layers[2].forward_seconds = 10.0;
  EXPECT_DOUBLE_EQ(job_bound(request), 2 * 1.0 + 12.0 * 4);
  request.update_seconds = 400.0;
  EXPECT_DOUBLE_EQ(job_bound(request), ((3 * 3.0 + 12.0) * 8 + 400.0) / 4);
}

// Frozen layers with parameters have no optimizer, and in front of others no backward, whichever
// order puts them there.
TEST(JobBound, LeavesOutWhatFrozenLayersDoNotDo) {
  JobRequest request = even_job(4, 1, 2);
  request.update_seconds = 5.0;
  EXPECT_DOUBLE_EQ(job_bound(request), 4 * 3.0 * 2 + 5.0);
  request.chain.layers[1].is_frozen = true;
  EXPECT_DOUBLE_EQ(job_bound(request), 4 * 3.0 * 2 + 5.0);
  request.chain.may_reorder = true;
  EXPECT_DOUBLE_EQ(job_bound(request), 4 * 3.0 * 2 - 2 * 2.0 + 5.0);
  for (partition::ModelLayer& layer : request.chain.layers) layer.is_frozen = true;
  EXPECT_DOUBLE_EQ(job_bound(request), 4 * 1.0 * 2);
  EXPECT_DOUBLE_EQ(search_job(request)->plan.step_seconds, 4 * 1.0 * 2);
}

TEST(JobBound, HoldsForEachNumberOfMicroBatches) {
  std::size_t compared = 0;
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    JobRequest request = random_job(seed);
    const double open = job_bound(request);
    for (std::uint32_t count = 1; count <= request.batch; ++count) {
      request.micro_batches = count;
      if (request.batch % count != 0) continue;
      EXPECT_LE(open * kDown, job_bound(request)) << seed << " in " << count;
      ++compared;
    }
  }
  EXPECT_GT(compared, kSeeds);
}

}  // namespace
}  // namespace spillway::job
