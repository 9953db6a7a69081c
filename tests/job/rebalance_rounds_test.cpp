#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "even_jobs.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/job_rebalance.h"
#include "support/sanitized.h"

namespace spillway::job {
namespace {

using Begins = std::vector<partition::LayerIndex>;

std::vector<std::uint32_t> stage_of_layers(const Begins& begins, std::size_t layers) {
  std::vector<std::uint32_t> stages(layers);
  for (std::uint32_t k = 0; k < begins.size(); ++k)
    std::fill(stages.begin() + begins[k], stages.end(), k);
  return stages;
}

JobPlan plan_of(const JobRequest& request) {
  return make_job_plan(request, partition::partitioner_named(request.partitioner),
                       {&planner_schedule::schedule_generator_named(request.schedule),
                        request.data_parallel, request.variant, request.micro_batches});
}

/// Follows the moves of a choice: who has which layers, and how much a rank holds, between rounds.
class Follower {
 public:
  Follower(const JobRequest& request, const schedule::Schedule& actions)
      : request_(request),
        stages_(stage_of_layers(request.stages.begins, request.chain.layers.size())) {
    for (const auto& ranks : actions.placement)
      for (std::uint32_t stage = 0; stage < actions.stages; ++stage)
        holders_[stage].insert(ranks[stage]);
  }

  void follow(const RebalanceChoice& choice) {
    double seconds = 0.0;
    Bytes bytes;
    std::size_t seen = 0;
    for (std::uint32_t round = 0; round < choice.rounds; ++round) {
      std::vector<RankMove> moves;
      for (const RankMove& move : choice.moves)
        if (move.round == round) moves.push_back(move);
      ASSERT_FALSE(moves.empty());
      seconds += round_seconds(moves);
      for (const RankMove& move : moves) bytes += move.bytes;
      expect_neighbours(moves);
      expect_room(moves);
      for (const RankMove& move : moves)
        for (partition::LayerIndex i = move.first_layer; i <= move.last_layer; ++i)
          stages_[i] = move.to_stage;
      seen += moves.size();
    }
    EXPECT_EQ(seen, choice.moves.size());
    EXPECT_EQ(stages_, stage_of_layers(choice.begins, stages_.size()));
    EXPECT_EQ(bytes, choice.bytes);
    EXPECT_NEAR(seconds, choice.move_seconds, 1e-9 * seconds);
  }

 private:
  Bytes static_bytes(partition::LayerIndex layer) const {
    const partition::ModelLayer& each = request_.chain.layers[layer];
    return each.parameters * static_cast<std::uint64_t>(each.static_ratio);
  }

  /// Every copy of the receiving stage gets each layer once, from a rank that has it.
  void expect_neighbours(const std::vector<RankMove>& moves) const {
    std::map<std::pair<partition::LayerIndex, std::uint32_t>, std::set<std::uint32_t>> receivers;
    for (const RankMove& move : moves) {
      EXPECT_EQ(std::max(move.from_stage, move.to_stage),
                std::min(move.from_stage, move.to_stage) + 1);
      EXPECT_TRUE(holders_.at(move.from_stage).contains(move.from_rank));
      Bytes bytes;
      for (partition::LayerIndex i = move.first_layer; i <= move.last_layer; ++i) {
        EXPECT_EQ(stages_[i], move.from_stage) << "layer " << i;
        EXPECT_TRUE((receivers[{i, move.to_stage}].insert(move.to_rank).second));
        bytes += static_bytes(i);
      }
      const bool has_both = holders_.at(move.from_stage).contains(move.to_rank);
      EXPECT_EQ(move.from_rank == move.to_rank, has_both);
      EXPECT_EQ(move.bytes, has_both ? Bytes() : bytes);
    }
    for (const auto& [layer, ranks] : receivers) EXPECT_EQ(ranks, holders_.at(layer.second));
  }

  /// All that arrives fits beside all that was there before.
  void expect_room(const std::vector<RankMove>& moves) const {
    std::map<std::uint32_t, Bytes> held;
    for (partition::LayerIndex i = 0; i < stages_.size(); ++i)
      for (const std::uint32_t rank : holders_.at(stages_[i])) held[rank] += static_bytes(i);
    std::set<std::uint32_t> receiving;
    for (const RankMove& move : moves) {
      if (move.bytes == Bytes(0)) continue;
      held[move.to_rank] += move.bytes;
      receiving.insert(move.to_rank);
    }
    for (const std::uint32_t rank : receiving)
      EXPECT_LE(held[rank] + request_.reserved, request_.device_memory) << "rank " << rank;
  }

  double round_seconds(const std::vector<RankMove>& moves) const {
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> links;
    double slowest = 0.0;
    for (const RankMove& move : moves) {
      if (move.bytes == Bytes(0)) continue;
      double& busy = links[{move.from_rank, move.to_rank}];
      busy += static_cast<double>(move.bytes.count()) / request_.link.rate.bytes_per_second();
      slowest = std::max(slowest, busy + request_.link.latency_seconds);
    }
    return slowest;
  }

  const JobRequest& request_;
  std::vector<std::uint32_t> stages_;
  std::map<std::uint32_t, std::set<std::uint32_t>> holders_;
};

/// A job that runs under cuts made for other times.
JobRequest random_job(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::uint32_t from, std::uint32_t to) {
    return from + random() % (to - from + 1);
  };
  const std::vector<std::string_view> schedules{"1f1b",        "gpipe",     "zb-v",
                                                "interleaved", "gems-mast", "chimera"};
  const std::uint32_t ranks = 2 * pick(1, 3);
  JobRequest request =
      even_job(pick(4 * ranks, 6 * ranks), ranks, 2 * ranks,
               schedules[pick(0, static_cast<std::uint32_t>(schedules.size()) - 1)]);
  if (request.schedule == "interleaved") request.variant.chunks = 2;
  for (partition::ModelLayer& layer : request.chain.layers) {
    layer.parameters = Bytes(kMega * pick(1, 30));
    layer.stash = Bytes();
    layer.forward_seconds = pick(1, 3);
    layer.backward_seconds = 2 * layer.forward_seconds;
  }
  request.reserved = Bytes(5 * kMega);
  request.data_parallel = 1;
  request.cut_effort = CutEffort::kExact;  // Quick: these tests are for what moves.
  request.link = {1e-3, TransferRate(1e7 * pick(1, 100))};
  const JobPlan plan = plan_of(request);
  for (const partition::StageEstimate& stage : plan.stages)
    request.stages.begins.push_back(stage.first_layer);
  request.device_memory = plan.peak() * (100 + pick(0, 3)) / 100;
  for (partition::ModelLayer& layer : request.chain.layers) {
    const double factor = pick(0, 2) == 0 ? pick(1, 4) : 1.0;
    layer.forward_seconds *= factor;
    layer.backward_seconds *= factor;
  }
  return request;
}

TEST(RebalanceRounds, LeadFromTheOldStagesToTheNewOnesWithinTheMemory) {
  std::size_t compared = 0;
  std::size_t proposed = 0;
  std::size_t handed_on = 0;
  std::size_t without_room = 0;
  for (std::uint32_t seed = 0; seed < tries(400U, 40U); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const JobRequest request = random_job(seed);
    const double steps_left = 1.0 + seed % 50;
    RebalancedJob job;
    try {
      job = rebalance_job(request, steps_left);
    } catch (const Error&) {
      continue;  // A layer is too large for an equal share of its rank.
    }
    if (!job.before) continue;
    ++compared;
    without_room += job.without_room;
    for (const RebalanceChoice& choice : job.choices) {
      Follower(request, job.before->actions).follow(choice);
      JobRequest asked = request;
      asked.stages.begins = choice.begins;
      EXPECT_DOUBLE_EQ(choice.step_seconds, plan_of(asked).step_seconds);
      EXPECT_LT(choice.step_seconds, job.step_before());
      handed_on += choice.rounds > 1 ? 1 : 0;
    }
    const double stays = steps_left * job.step_before();
    const double goes =
        job.chosen ? steps_left * job.plan.step_seconds + job.choices[*job.chosen].move_seconds
                   : stays;
    EXPECT_LE(goes, stays);
    proposed += job.chosen ? 1 : 0;
  }
  EXPECT_GT(compared, tries(300U, 25U));
  EXPECT_GT(proposed, tries(100U, 10U));
  EXPECT_GT(handed_on, tries(30U, 3U));
  EXPECT_GE(without_room, tries(3U, 0U));
}

TEST(RebalanceRounds, ReachTheStepOfAFreshPlanWhereThereIsRoom) {
  for (std::uint32_t seed = 0; seed < tries(200U, 20U); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    JobRequest request = random_job(seed);
    request.device_memory = partition::kNoLimit;
    const RebalancedJob job = rebalance_job(request, std::nullopt);
    EXPECT_EQ(job.without_room, 0U);
    JobRequest anew = request;
    anew.stages = {};
    EXPECT_LE(job.plan.step_seconds, plan_of(anew).step_seconds * (1 + 1e-9));
  }
}

/// Nearly all of 16 layers of 12 MB are on the first of four ranks.
JobRequest crowded(Bytes device_memory) {
  JobRequest request = even_job(16, 4, 8, "1f1b");
  for (partition::ModelLayer& layer : request.chain.layers) layer.stash = Bytes();
  request.data_parallel = 1;
  request.device_memory = device_memory;
  request.link = {0.0, TransferRate(12e6)};  // A layer in a second.
  request.stages.begins = {0, 13, 14, 15};
  return request;
}

TEST(RebalanceRounds, HandLayersOnOverSeveralStages) {
  const JobRequest request = crowded(Bytes(200 * kMega));
  const RebalancedJob job = rebalance_job(request, std::nullopt);
  ASSERT_TRUE(job.chosen);
  const RebalanceChoice& choice = job.choices[*job.chosen];
  EXPECT_EQ(choice.begins, (Begins{0, 4, 8, 12}));
  EXPECT_EQ(choice.rounds, 3U);
  // Nine, then at most five, then one layer at once over a link: each passes its borders one by
  // one.
  EXPECT_DOUBLE_EQ(choice.move_seconds, 9.0 + 5.0 + 1.0);
  EXPECT_EQ(choice.bytes, Bytes((9 + 6 + 3) * 12 * kMega));
}

/// Each of four stages on two ranks has a light layer, and each but the last one a heavy one of
/// 120 MB behind it. The first layer became slow: the heavy ones all go to the next stage.
JobRequest heavy_and_light(Bytes device_memory) {
  JobRequest request = even_job(7, 2, 4, "interleaved");
  request.variant.chunks = 2;
  request.data_parallel = 1;
  for (partition::LayerIndex i = 0; i < 7; ++i) {
    partition::ModelLayer& layer = request.chain.layers[i];
    layer.parameters = Bytes((i % 2 == 0 ? 1 : 40) * kMega);
    layer.stash = Bytes();
    layer.forward_seconds = i == 0 ? 3.0 : i % 2 == 0 ? 2.0 : 1.0;
    layer.backward_seconds = 0.0;
  }
  request.device_memory = device_memory;
  request.link = {0.0, TransferRate(120e6)};
  request.stages.begins = {0, 2, 4, 6};
  return request;
}

TEST(RebalanceRounds, WaitForRoom) {
  const JobRequest ample = heavy_and_light(Bytes(500 * kMega));
  RebalancedJob job = rebalance_job(ample, std::nullopt);
  ASSERT_TRUE(job.chosen);
  EXPECT_EQ(job.choices[*job.chosen].begins, (Begins{0, 1, 3, 5}));
  EXPECT_EQ(job.choices[*job.chosen].rounds, 1U);
  // Two layers from the first rank to the second one, on one link.
  EXPECT_DOUBLE_EQ(job.choices[*job.chosen].move_seconds, 2.0);

  // The first rank has two heavy layers and room for no third one; the second one gets one of them
  // first, then sends its own, and gets the other one then.
  const JobRequest tight = heavy_and_light(Bytes(270 * kMega));
  job = rebalance_job(tight, std::nullopt);
  ASSERT_TRUE(job.chosen);
  const RebalanceChoice& choice = job.choices[*job.chosen];
  EXPECT_EQ(choice.begins, (Begins{0, 1, 3, 5}));
  EXPECT_EQ(choice.rounds, 3U);
  EXPECT_DOUBLE_EQ(choice.move_seconds, 3.0);
  Follower(tight, job.plan.actions).follow(choice);
}

}  // namespace
}  // namespace spillway::job
