#include <gmock/gmock.h>

#include "even_jobs.h"
#include "spillway/planner/job/job_bound.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/planner/job/measured_model.h"
#include "spillway/profile/import/trace_import.h"
#include "support/branched_graph.h"
#include "support/file_text.h"
#include "support/golden_part.h"
#include "support/reference_data.h"

namespace spillway::job {
namespace {

/// Branches of 12, 18 and 6 ms, all ways: two stages have 18 ms each, and 24 ms as recorded.
JobRequest branched_job(std::string_view schedule = "1f1b") {
  const MeasuredModel model =
      measured_model(profile::import_pipedream(branched_graph({4, 6, 2}), "branches"));
  JobRequest request;
  request.chain = model.chain;
  request.ranks = 2;
  request.micro_batches = 4;
  request.schedule = schedule;
  return request;
}

TEST(JobOrder, PutsBranchesOnStagesThatTheRecordedOrderCannot) {
  const JobRequest request = branched_job();
  ASSERT_TRUE(request.chain.may_reorder);
  ASSERT_EQ(request.chain.layers.size(), 5U);
  const JobPlan plan = planned(request);
  EXPECT_TRUE(plan.order.is_exact);
  EXPECT_NEAR(plan.order.recorded_seconds, 0.024, 0.0005);
  EXPECT_NEAR(plan.order.seconds, 0.018, 0.0005);
  EXPECT_NEAR(plan.seconds_per_micro_batch, plan.order.seconds, 1e-9);
  // The layer of 18 ms is alone with one of both ends.
  std::vector<std::size_t> branches;
  for (const partition::StageEstimate& stage : plan.stages) {
    branches.push_back(0);
    for (partition::LayerIndex place = stage.first_layer; place <= stage.last_layer; ++place) {
      const partition::LayerIndex layer = layer_order::layer_at(plan.order.layers, place);
      branches.back() += layer >= 1 && layer <= 3 ? 1 : 0;
    }
  }
  EXPECT_THAT(branches, ::testing::UnorderedElementsAre(1U, 2U));

  JobRequest fixed = request;
  fixed.chain.may_reorder = false;
  const JobPlan recorded = planned(fixed);
  EXPECT_TRUE(recorded.order.layers.empty());
  EXPECT_NEAR(recorded.seconds_per_micro_batch, 0.024, 0.0005);
  EXPECT_LT(plan.step_seconds, 0.9 * recorded.step_seconds);
}

TEST(JobOrder, IsNeverSlowerThanTheRecordedOneWhateverTheSchedule) {
  JobRequest request = branched_job(kAnySchedule);
  const JobSearch open = *search_job(request);
  request.chain.may_reorder = false;
  const JobSearch fixed = *search_job(request);
  EXPECT_LE(open.plan.step_seconds, fixed.plan.step_seconds * (1 + 1e-9));
  EXPECT_GE(open.plan.step_seconds, job_bound(request) * (1 - 1e-9));
}

TEST(JobOrder, IsInTheFileAndChecked) {
  GoldenPart golden;
  const JobRequest request = branched_job();
  const JobPlan plan = planned(request);
  ASSERT_FALSE(plan.order.layers.empty());
  JobFile file = parse_job_file(to_text(describe_job(plan, request.chain)), "plan");
  EXPECT_EQ(file.order, plan.order.layers);
  EXPECT_EQ(job_fault(file), std::nullopt);
  // Names are those of the layers that run at these places.
  for (const JobFileStage& stage : file.stages) {
    EXPECT_EQ(stage.first_name, request.chain.layers[file.order[stage.first]].name);
    EXPECT_EQ(stage.last_name, request.chain.layers[file.order[stage.last]].name);
  }
  file.order[2] = file.order[3];
  golden.add(job_fault(file).value_or(""));
  file.order[2] = 9;
  golden.add(job_fault(file).value_or(""));
  file.order.pop_back();
  golden.add(job_fault(file).value_or(""));
}

/// A chain keeps its place in the file as it was.
TEST(JobOrder, IsNotInTheFileOfAChain) {
  const JobRequest request = even_job(6, 2, 2, "1f1b");
  EXPECT_EQ(to_text(describe_job(planned(request), request.chain)).find("\"order\""),
            std::string::npos);
}

struct PublishedOrder {
  const char* network;
  std::uint32_t stages;
};

class PublishedOrders : public ::testing::TestWithParam<PublishedOrder> {};
INSTANTIATE_TEST_SUITE_P(Networks, PublishedOrders,
                         ::testing::Values(PublishedOrder{"resnet50", 4},
                                           PublishedOrder{"resnet50", 8},
                                           PublishedOrder{"densenet121", 4},
                                           PublishedOrder{"densenet121", 8},
                                           PublishedOrder{"gnmt", 4}, PublishedOrder{"gnmt", 8}));

TEST_P(PublishedOrders, LoseNothingAgainstAllOrders) {
  for (const ReferenceFile& file :
       reference_files(std::string("pipedream/") + GetParam().network + ".graph.txt")) {
    SCOPED_TRACE(file);
    partition::PartitionProblem problem;
    problem.chain =
        measured_model(profile::import_pipedream(file_text(file.path), file.path)).chain;
    ASSERT_TRUE(problem.chain.may_reorder);
    const std::uint32_t stages = GetParam().stages;
    problem.devices.resize(stages);
    problem.links.assign(stages - 1, LinkCosts{10e-6, TransferRate(12e9)});
    for (std::uint32_t k = 0; k < stages; ++k) problem.devices[k].held.in_flight = stages - k;
    const layer_order::OrderChoice choice =
        layer_order::choose_order(problem, layer_order::kThoroughOrder);
    EXPECT_TRUE(choice.is_exact);
    EXPECT_LE(choice.seconds, choice.recorded_seconds);
    RecordProperty("downsets", static_cast<int>(choice.downsets));
    RecordProperty("recorded_loses_per_mille",
                   static_cast<int>(1000 * (choice.recorded_seconds / choice.seconds - 1)));
  }
}

}  // namespace
}  // namespace spillway::job
