#include <gtest/gtest.h>

#include <set>

#include "even_jobs.h"
#include "spillway/planner/job/measured_model.h"
#include "support/chain_profile.h"

namespace spillway::job {
namespace {

/// Two layers a stage on four ranks, with a link to the host.
JobRequest job_of(std::string_view schedule) {
  const NamedSchedule named = schedule_in(schedule);
  JobRequest request = even_job(8, 4, 8, named.generator->name);
  request.variant = named.variant;
  request.swap_rate = TransferRate(1e9);
  request.update_seconds = 1.0;
  request.partitioner = "even";
  return request;
}

// Buffers were parameters: GEMS lent and parked them, and reductions sent them.
TEST(LayerBuffers, AreThereWithEachCopyAndMoveNowhere) {
  for (const char* schedule :
       {"1f1b", "zb-v", "gems-mast", "gems-mast:parked", "gems-mast:single-owner", "chimera"}) {
    JobRequest request = job_of(schedule);
    const JobPlan without = planned(request);
    request.chain.layers[0].buffers = Bytes(30 * kMega);
    request.chain.layers[7].buffers = Bytes(2 * kMega);
    const JobPlan plan = planned(request);
    const std::uint32_t last = plan.actions.stages - 1;
    for (std::uint32_t stage = 0; stage <= last; ++stage) {
      SCOPED_TRACE(message("{}, stage {}", schedule, stage));
      const Bytes buffers(stage == 0 ? 30 * kMega : stage == last ? 2 * kMega : 0);
      EXPECT_EQ(plan.bytes_before[stage].buffers, buffers);
      EXPECT_EQ(plan.bytes_after[stage].buffers, buffers);
      EXPECT_EQ(plan.bytes_before[stage].all(), without.bytes_before[stage].all() + buffers);
      EXPECT_EQ(plan.bytes_before[stage].weights, without.bytes_before[stage].weights);
      EXPECT_EQ(plan.bytes_before[stage].gradients, without.bytes_before[stage].gradients);
      EXPECT_EQ(plan.costs.stages[stage].weights, without.costs.stages[stage].weights);
      EXPECT_EQ(plan.costs.stages[stage].gradients, without.costs.stages[stage].gradients);
      EXPECT_EQ(plan.costs.stages[stage].optimizer_state,
                without.costs.stages[stage].optimizer_state);
      EXPECT_EQ(plan.costs.stages[stage].step_seconds, without.costs.stages[stage].step_seconds);
    }
    EXPECT_DOUBLE_EQ(plan.step_seconds, without.step_seconds) << schedule;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      SCOPED_TRACE(message("{}, rank {}", schedule, rank));
      Bytes held;  // By each of its copies of a stage, however many replicas use it.
      std::set<std::uint32_t> stages;
      for (std::uint32_t replica = 0; replica < plan.actions.replica_count(); ++replica)
        for (const std::uint32_t stage : {0U, last})
          if (plan.actions.rank_of(replica, stage) == rank && stages.insert(stage).second)
            held += plan.bytes_before[stage].buffers;
      EXPECT_EQ(plan.memory[rank].fixed, held);
      EXPECT_EQ(plan.memory[rank].peak, without.memory[rank].peak + held);
      EXPECT_EQ(plan.memory[rank].host, without.memory[rank].host);
    }
  }
}

// They make a stage too large for its device, which then has to swap.
TEST(LayerBuffers, TakeRoomFromStashes) {
  JobRequest request = job_of("1f1b");
  request.variant.memory_reduction = JobMemoryReduction::kStages;
  request.device_memory = planned(request).peak();
  EXPECT_FALSE(planned(request).reduces_memory());
  request.chain.layers[0].buffers = Bytes(30 * kMega);
  const JobPlan plan = planned(request);
  EXPECT_TRUE(plan.reduces_memory());
  EXPECT_LE(plan.peak(), request.device_memory);
  request.chain.layers[0].buffers = request.device_memory;
  EXPECT_EQ(search_job(request).refusal().cause, Refusal::Cause::kRoom);
}

// The data of a step that lives on to the next one was shown, sent and stepped as weights.
TEST(LayerBuffers, OfAProfileAreNoSecondSetOfWeights) {
  profile::StepProfile profile = chain_profile();
  profile.class_of_value[0] = profile::StorageClass::kBuffer;
  const Bytes data = profile.bytes_of_value[0];
  const Bytes weights = profile.bytes_of_value[1];
  const MeasuredModel model = measured_model(profile);
  EXPECT_EQ(model.chain.layers[0].buffers, data);
  EXPECT_EQ(model.chain.layers[0].parameters, weights);
  EXPECT_DOUBLE_EQ(model.chain.layers[0].static_ratio, 3.0);

  JobRequest request;
  request.chain = model.chain;
  request.update_seconds = model.update_seconds;
  request.reserved = model.reserved;
  request.ranks = 2;
  request.micro_batches = 4;
  request.schedule = "gems-mast";
  request.partitioner = "parameters";
  const JobPlan plan = planned(request);
  ASSERT_EQ(plan.stages[0].last_layer, 2U);  // Three of six convolutions.
  EXPECT_EQ(plan.bytes_before[0].buffers, data);
  EXPECT_EQ(plan.bytes_before[0].weights, 2 * 3 * weights);
  EXPECT_EQ(plan.costs.stages[0].weights, 3 * weights);
  EXPECT_EQ(plan.costs.stages[0].gradients, 3 * weights);
  EXPECT_DOUBLE_EQ(plan.costs.stages[0].step_seconds, model.update_seconds / 2);
  for (const RankMemory& rank : plan.memory)
    EXPECT_EQ(rank.fixed, model.reserved + data +
                              std::max(plan.bytes_before[0].working, plan.bytes_before[1].working));
}

}  // namespace
}  // namespace spillway::job
