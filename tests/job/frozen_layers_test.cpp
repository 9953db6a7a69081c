#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "even_jobs.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/planner/job/measured_model.h"
#include "support/chain_profile.h"

namespace spillway::job {
namespace {

/// Layers of all sizes, of which one at least leads frozen and one is trained, and tensors over
/// several of them.
partition::ModelChain any_chain(std::uint32_t seed) {
  std::mt19937_64 random(seed * 2654435761U + 5);
  const auto among = [&](std::uint32_t least, std::uint32_t most) {
    return least + static_cast<std::uint32_t>(random() % (most - least + 1));
  };
  const std::uint32_t layers = among(5, 10);
  partition::ModelChain chain = even_chain(layers);
  const std::uint32_t lead = among(1, layers - 1);
  for (partition::LayerIndex i = 0; i < layers; ++i) {
    partition::ModelLayer& layer = chain.layers[i];
    layer.parameters = Bytes(among(0, 9) * kMega);
    layer.static_ratio = among(2, 4);
    layer.stash = Bytes(among(0, 9) * kMega);
    layer.working_peak = Bytes(among(0, 5) * kMega);
    layer.buffers = Bytes(among(0, 2) * kMega);
    // Frozen ones behind the first trained one hand on gradients.
    layer.is_frozen = i < lead || (i > lead && among(0, 4) == 0);
  }
  for (std::uint32_t i = 0; i < 4; ++i) {
    const partition::LayerIndex producer = among(0, layers - 2);
    partition::BorderTensor border{producer, {}, Bytes(among(1, 9) * kMega)};
    for (std::uint32_t readers = among(1, 3); readers > 0; --readers)
      border.consumers.push_back(among(producer + 1, layers - 1));
    chain.borders.push_back(border);
  }
  return chain;
}

/// Of the tensors that come into a stage, what it does not keep with its stashes.
Bytes passing(const partition::ModelChain& chain, const partition::StageEstimate& stage) {
  const partition::LayerIndex lead = partition::leading_frozen_layers(chain);
  Bytes bytes;
  for (const partition::BorderTensor& border : chain.borders) {
    const auto reads = [&](partition::LayerIndex from, partition::LayerIndex to) {
      return std::any_of(border.consumers.begin(), border.consumers.end(),
                         [&](partition::LayerIndex each) { return each >= from && each <= to; });
    };
    const auto last = static_cast<partition::LayerIndex>(chain.layers.size() - 1);
    if (border.producer >= stage.first_layer || !reads(stage.first_layer, last)) continue;
    if (!reads(std::max(stage.first_layer, lead), stage.last_layer)) bytes += border.bytes;
  }
  return bytes;
}

// Tensors that frozen layers alone read were on no rank.
TEST(FrozenLayers, HoldOnRanksWhatCutsHaveCounted) {
  std::size_t only_read = 0;
  std::size_t untrained = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(message("seed {}", seed));
    JobRequest request = even_job(1, 2 + seed % 3, 6, seed % 2 == 0 ? "1f1b" : "gpipe");
    request.chain = any_chain(seed);
    request.reserved = Bytes(kMega);
    request.partitioner = "even";
    const JobPlan plan = planned(request);
    const partition::LayerIndex lead = partition::leading_frozen_layers(request.chain);
    for (std::size_t k = 0; k < plan.stages.size(); ++k) {
      const partition::StageEstimate& stage = plan.stages[k];
      Bytes fixed = request.reserved + passing(request.chain, stage);
      Bytes peak;
      for (partition::LayerIndex i = stage.first_layer; i <= stage.last_layer; ++i) {
        const partition::ModelLayer& layer = request.chain.layers[i];
        fixed += layer.buffers + (layer.is_frozen ? layer.parameters : Bytes());
        peak = std::max(peak, layer.working_peak);
      }
      EXPECT_EQ(plan.memory[k].fixed, fixed + peak) << k;
      EXPECT_EQ(plan.memory[k].peak, stage.raw_memory) << k;
      EXPECT_EQ(plan.bytes_before[k].all(), stage.raw_memory) << k;
      if (stage.last_layer < lead) ++untrained;
      if (stage.last_layer < lead && plan.bytes_before[k].relayed > Bytes()) ++only_read;
    }
  }
  EXPECT_GT(untrained, 100U);
  EXPECT_GT(only_read, 100U);
}

TEST(FrozenLayers, GetNoGradientAndAreNotUpdated) {
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1", "zb-v", "interleaved", "gems-mast"}) {
    SCOPED_TRACE(schedule);
    JobRequest request = even_job(8, 4, 8, schedule);
    request.update_seconds = 1.0;
    request.partitioner = "even";
    JobRequest all_trained = request;
    for (partition::LayerIndex i = 0; i < 5; ++i) request.chain.layers[i].is_frozen = true;
    const JobPlan plan = planned(request);
    std::uint32_t returning = 0;
    for (const auto& actions : plan.actions.ranks)
      for (const schedule::Action& action : actions) {
        if (action.kind != schedule::ActionKind::kSendBackward) continue;
        ++returning;
        EXPECT_GT(plan.stages[action.stage].first_layer, 5U) << action;
      }
    EXPECT_GT(returning, 0U);
    double update = 0.0;
    for (std::size_t k = 0; k < plan.stages.size(); ++k) {
      const planner_schedule::StageCosts& costs = plan.costs.stages[k];
      update += costs.step_seconds;
      if (plan.stages[k].last_layer >= 5) continue;
      EXPECT_EQ(costs.step_seconds, 0.0) << k;
      EXPECT_EQ(costs.gradients, Bytes()) << k;
      EXPECT_EQ(costs.weights, Bytes()) << k;
    }
    EXPECT_DOUBLE_EQ(update, 1.0);
    // The update falls to fewer stages; without it, less work is never slower.
    request.update_seconds = all_trained.update_seconds = 0.0;
    EXPECT_LE(planned(request).step_seconds, planned(all_trained).step_seconds);
    const JobFile read = parse_job_file(to_text(describe_job(plan, request.chain)), "plan");
    EXPECT_EQ(read.actions.untrained_stages, plan.actions.untrained_stages);
    EXPECT_EQ(job_fault(read), std::nullopt);
  }
}

// Gradients of frozen weights were reduced beside those of the trained ones.
TEST(FrozenLayers, AddNothingToReductions) {
  JobRequest request = even_job(4, 2, 8, "1f1b");
  request.partitioner = "even";
  for (partition::ModelLayer& layer : request.chain.layers) layer.static_ratio = 4.0;
  request.chain.layers[2].is_frozen = true;  // Behind trained ones, beside another one.
  const JobPlan plan = planned(request);
  EXPECT_EQ(plan.costs.stages[1].weights, Bytes(4 * kMega));
  EXPECT_EQ(plan.costs.stages[1].gradients, Bytes(4 * kMega));
  EXPECT_EQ(plan.costs.stages[1].optimizer_state, Bytes(8 * kMega));
  EXPECT_EQ(plan.bytes_before[1].weights, Bytes(8 * kMega));
  EXPECT_EQ(plan.bytes_before[1].gradients, Bytes(4 * kMega));
  EXPECT_EQ(plan.bytes_before[1].optimizer, Bytes(8 * kMega));
  EXPECT_EQ(plan.actions.untrained_stages, 0U);
}

TEST(MeasuredModel, FreezesThePrefixThatBackwardLeavesOut) {
  const MeasuredModel model = measured_model(chain_profile({.layers = 6, .frozen = 3}));
  ASSERT_EQ(model.chain.layers.size(), 7U);
  // Backward begins with what the third one makes.
  EXPECT_EQ(partition::leading_frozen_layers(model.chain), 2U);
  for (partition::LayerIndex i = 0; i < 7; ++i) {
    const partition::ModelLayer& layer = model.chain.layers[i];
    EXPECT_EQ(layer.is_frozen, i < 2) << i;
    EXPECT_EQ(layer.backward_seconds > 0.0, i >= 3 && i < 6) << i;
    EXPECT_EQ(layer.stash > Bytes(), i >= 2) << i;  // The loss leaves a gradient.
    EXPECT_EQ(layer.parameters > Bytes(), i >= 3 && i < 6) << i;
    EXPECT_EQ(layer.buffers > Bytes(), i < 3) << i;
  }
  EXPECT_DOUBLE_EQ(model.chain.layers[4].static_ratio, 3.0);
  EXPECT_EQ(partition::leading_frozen_layers(measured_model(chain_profile()).chain), 0U);
}

// A first layer whose weights are trained, though backward does not look at it.
TEST(MeasuredModel, FreezesNoLayerThatReadsTrainedParameters) {
  profile::StepProfile profile = chain_profile({.layers = 6, .frozen = 3});
  const profile::ValueIndex weights = profile.tape.uses[profile.tape.ops[1].first_use + 1].value;
  profile.class_of_value[weights] = profile::StorageClass::kParameter;
  EXPECT_EQ(partition::leading_frozen_layers(measured_model(profile).chain), 1U);
}

}  // namespace
}  // namespace spillway::job
