#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "piper_chain.h"
#include "piper_program.h"
#include "spillway/planner/partition/partitioners.h"
#include "support/file_text.h"
#include "support/reference_data.h"

namespace spillway::partition {
namespace {

/// Plans of eight stages for BERT with 48 layers (97 blocks): blocks of each stage, and the share
/// of them that is recomputed. Repository hku-systems/vpipe.
struct PublishedPlan {
  const char* name;
  std::vector<double> blocks;
  std::vector<double> recomputed;
};
const PublishedPlan kPlans[] = {
    {"vPipe", {11, 11, 12, 12, 13, 13, 14, 11}, {1, .85, .8, .6, .5, .2, 0, 0}},
    {"PipeDream", {11, 12, 13, 13, 13, 13, 12, 10}, {0, 0, 0, 0, 0, 0, 0, 0}},
};

/// Blocks of forward 1 and backward 2 that keep 1,000 bytes, or run forward again.
PartitionProblem bert48(double stash_per_device) {
  PartitionProblem problem;
  for (int i = 0; i < 97; ++i) {
    ModelLayer block;
    block.name = "block";
    block.forward_seconds = 1.0;
    block.backward_seconds = 2.0;
    block.stash = Bytes(1000);
    block.recompute = {{1.0, Bytes()}};
    problem.chain.layers.push_back(block);
  }
  problem.devices.assign(
      8, {.memory = Bytes(static_cast<std::uint64_t>(std::llround(1000 * stash_per_device)))});
  for (std::uint32_t k = 0; k < 8; ++k) problem.devices[k].held.in_flight = 8 - k;
  return problem;
}

TEST(PublishedPlans, OfBert48AreNotQuickerThanOursAtTheirStash) {
  for (const PublishedPlan& plan : kPlans) {
    SCOPED_TRACE(plan.name);
    double seconds = 0.0;
    double stash = 0.0;
    for (std::size_t k = 0; k < 8; ++k) {
      seconds = std::max(seconds, plan.blocks[k] * (3.0 + plan.recomputed[k]));
      stash = std::max(stash,
                       (1 - plan.recomputed[k]) * plan.blocks[k] * (8.0 - static_cast<double>(k)));
    }
    const SegmentCosts costs(bert48(stash));
    const PartitionEstimate ours = evaluate(costs, partitioner_named("spillway").cut(costs));
    EXPECT_LE(ours.seconds, seconds);
    RecordProperty(std::string(plan.name) + "_seconds_percent",
                   static_cast<int>(100 * ours.seconds));
    const auto smallest = least_memory_cuts(costs, seconds);
    ASSERT_TRUE(smallest);
    EXPECT_LE(smallest->worst, 1000 * stash);
  }
}

/// BERT on one A100 per stage.
PartitionProblem bert(const ModelChain& chain, std::uint32_t stages, Bytes memory) {
  PartitionProblem problem;
  problem.chain = chain;
  problem.devices.assign(stages, {.memory = memory});
  for (std::uint32_t k = 0; k < stages; ++k) problem.devices[k].held.in_flight = stages - k;
  return problem;
}

/// Plans for one number of stages and one size of memory. Whether a link to swap to, which Piper
/// does not know, makes ours quicker than theirs.
bool is_quicker_with_swaps(const PartitionProblem& problem) {
  const SegmentCosts costs(problem);
  const double theirs = piper_seconds(costs);
  const auto bound = least_time_cuts(costs);
  EXPECT_EQ(bound.has_value(), theirs < std::numeric_limits<double>::infinity());
  if (!bound) return false;
  const PartitionEstimate ours = evaluate(costs, partitioner_named("spillway").cut(costs));
  EXPECT_NEAR(piper_seconds(costs, partitioner_named("piper").cut(costs)), theirs, 1e-9 * theirs);
  EXPECT_LE(bound->worst, theirs * (1 + 1e-12));
  EXPECT_LE(ours.seconds, theirs * (1 + 1e-12));
  PartitionProblem swapping = problem;
  for (StageDevice& device : swapping.devices) device.swap_rate = TransferRate(12e9);
  const SegmentCosts both(swapping);
  const double seconds = evaluate(both, partitioner_named("spillway").cut(both)).seconds;
  EXPECT_LE(seconds, ours.seconds * (1 + 1e-12));
  return seconds < theirs * 0.999;
}

TEST(PublishedPlans, OfPiperForBertAreNotQuickerThanOurs) {
  for (const ReferenceFile& file : reference_files("piper/bert32a100.json")) {
    SCOPED_TRACE(file);
    const ModelChain chain = quality::piper_chain(file_text(file.path), file.path);
    // A quarter of the layers, so a quarter of the memory.
    const std::uint64_t share = file.is_whole ? 1'000'000'000 : 250'000'000;
    std::uint32_t quicker = 0;
    for (const std::uint32_t stages : {4U, 8U, 16U}) {
      if (stages > chain.layers.size()) continue;
      for (const std::uint64_t shares : {6U, 8U, 12U, 20U}) {
        SCOPED_TRACE(::testing::Message() << stages << " stages, " << shares << " shares");
        quicker += is_quicker_with_swaps(bert(chain, stages, Bytes(shares * share)));
      }
    }
    EXPECT_GT(quicker, 0U);
  }
}

}  // namespace
}  // namespace spillway::partition
