#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "planning_command.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/planner/schedule/generators.h"
#include "spillway/profile/import/trace_import.h"
#include "support/branched_graph.h"
#include "support/documented_keys.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

/// The chain of six layers and a loss on three ranks.
class JobCommand : public PlanningCommand {
 protected:
  JobOptions job() const {
    JobOptions options;
    options.profile = profile_;
    options.request.ranks = 3;
    options.micro_batches = 6;
    take_schedule("1f1b", options.request);
    return options;
  }

  json told_chosen() const {
    JobOptions options = job();
    take_schedule("auto", options.request);
    return told(options);
  }
};

TEST_F(JobCommand, HasTheDocumentedKeysAndNoOthers) {
  JobOptions options = job();
  options.request.device_memory = 1_GiB;
  const auto page = documented(SPILLWAY_TEST_PLANNING_OUTPUT, "Many ranks");
  const json plan = told(options);
  Keys expected;
  for (const auto& [key, meaning] : page) expected.insert(key);
  expected.erase("machine");
  EXPECT_EQ(keys_of(plan), expected);
  for (const char* key : {"order", "stages", "per_rank", "hosts", "attempts", "model"})
    EXPECT_EQ(keys_within(plan[key]), keys_in(page.at(key).text)) << key;
  options.request.device_memory = partition::kNoLimit;
  expected.erase("device_memory_bytes");
  EXPECT_EQ(keys_of(told(options)), expected);
}

TEST_F(JobCommand, CutsTheProfileIntoStages) {
  const json plan = told(job());
  ASSERT_EQ(plan["stages"].size(), 3U);
  EXPECT_EQ(plan["stages"][0]["first"], 0);
  EXPECT_EQ(plan["stages"][0]["first_name"], "aten::convolution #0");
  EXPECT_EQ(plan["stages"][2]["last"], 6);
  EXPECT_EQ(plan["stages"][2]["last_name"], "aten::mse_loss #6");
  EXPECT_TRUE(plan["stages"][0]["in_flight"].is_number_float()) << "of split backwards a fraction";
  EXPECT_EQ(plan["schedule"], "1f1b");
  EXPECT_EQ(plan["data_parallel"], 1);
  EXPECT_GE(plan["step_seconds"], plan["bound"]);
  EXPECT_NEAR(plan["gap"].get<double>(),
              plan["step_seconds"].get<double>() / plan["bound"].get<double>() - 1.0, 1e-12);
  // Three stages of 24 ms (and the loss of 1 ms): 8 slots, and the update of two layers each.
  EXPECT_NEAR(plan["step_seconds"].get<double>(), 8 * 0.024 + 0.002, 0.009);
}

TEST_F(JobCommand, PutsBranchesIntoAnotherOrderWhereTheProfileKnowsWhatWaits) {
  JobOptions options = job();
  options.request.ranks = 2;
  // Branches of 12, 18 and 6 ms: 24 ms beside 12 as recorded.
  options.profile = in_folder("branches.json");
  profile::StepProfile branches = profile::import_pipedream(branched_graph({4, 6, 2}), "branches");
  write(options.profile, profile::to_text(branches));
  json plan = told(options);
  EXPECT_EQ(plan["order"]["is_open"], true);
  EXPECT_EQ(plan["order"]["is_exact"], true);
  EXPECT_EQ(plan["order"]["loss"], 0.0);
  EXPECT_NEAR(plan["order"]["recorded_seconds"].get<double>(), 0.024, 0.0005);
  EXPECT_NEAR(plan["order"]["seconds"].get<double>(), 0.018, 0.0005);
  // Each layer as recorded is in one stage.
  std::multiset<int> layers;
  for (const json& stage : plan["stages"])
    for (const json& range : stage["ranges"])
      for (int layer = range[0]; layer <= range[1]; ++layer) layers.insert(layer);
  EXPECT_THAT(layers, ::testing::ElementsAre(0, 1, 2, 3, 4));
  options.out = in_folder("branches.plan.json");
  this->output(options);
  CheckOptions check;
  check.plan = options.out;
  EXPECT_EQ(told(check)["step_seconds"], plan["step_seconds"]);
  options.out.clear();

  options.order = BranchOrder::kRecorded;
  plan = told(options);
  EXPECT_EQ(plan["order"]["is_open"], false);
  EXPECT_TRUE(plan["order"]["loss"].is_null());
  EXPECT_EQ(plan["stages"][1]["ranges"].size(), 1U);
  // A recorded profile does not know; its tensors may be trusted.
  branches.hidden_dependences.reset();
  write(options.profile, profile::to_text(branches));
  options.order = BranchOrder::kAuto;
  EXPECT_EQ(told(options)["order"]["is_open"], false);
  options.order = BranchOrder::kAny;
  EXPECT_NEAR(told(options)["order"]["seconds"].get<double>(), 0.018, 0.0005);
}

TEST_F(JobCommand, ComparesAllSchedulesAndPartitioners) {
  JobOptions options = job();
  take_schedule("auto", options.request);
  options.compare = true;
  json rows = told(options);
  const auto page = documented(SPILLWAY_TEST_PLANNING_OUTPUT, "Comparisons");
  for (const json& row : rows) {
    Keys expected;
    for (const auto& [key, meaning] : page)
      if (row["is_possible"] || !meaning.is_of_plan) expected.insert(key);
    expected.erase("machine");
    EXPECT_EQ(keys_of(row), expected);
  }
  // The last one is what the chooser takes.
  const json best = rows.back();
  rows.erase(rows.size() - 1);
  EXPECT_EQ(best["has_any_data_parallel"], true);
  EXPECT_EQ(best["data_parallel"], told_chosen()["data_parallel"]);
  EXPECT_EQ(best["step_seconds"], told_chosen()["step_seconds"]);
  std::set<std::string> schedules, cutters;
  double last = 0.0;
  for (const json& row : rows) {
    schedules.insert(row["schedule"]);
    cutters.insert(row["partitioner"]);
    EXPECT_EQ(row["data_parallel"], 1);
    EXPECT_EQ(row["has_any_data_parallel"], false);
    if (!row["is_possible"]) continue;
    EXPECT_GE(row["step_seconds"].get<double>(), last);
    last = row["step_seconds"];
  }
  EXPECT_EQ(schedules.size(), planner_schedule::schedule_generators().size());
  EXPECT_EQ(cutters.size(), partition::partitioners().size());
}

// It ended as if there was something in its table.
TEST_F(JobCommand, ComparesNothingWhereNothingFits) {
  JobOptions options = job();
  options.compare = true;
  options.request.device_memory = 1_MiB;
  for (const char* schedule : {"auto", "1f1b"}) {
    take_schedule(schedule, options.request);
    EXPECT_THROW(output(options), PlanError) << schedule;
  }
}

/// Steps by partitioner, of the fastest schedule with one stage on each rank.
std::map<std::string, double> steps_by_partitioner(const json& rows) {
  std::map<std::string, double> steps;
  const auto has_one_stage = [](const json& row) {
    return planner_schedule::schedule_generator_named(row["schedule"].get<std::string>())
               .stages_per_rank == planner_schedule::StagesPerRank::kOne;
  };
  for (const json& row : rows)
    if (row["is_possible"] && !row["has_any_data_parallel"] && has_one_stage(row))
      steps.emplace(row["partitioner"], row["step_seconds"]);
  return steps;
}

// Where the model fits on each device, data-parallel replicas of one rank would leave nothing to
// compare.
TEST_F(JobCommand, ComparesCutsThatDiffer) {
  JobOptions options = job();
  options.profile = in_folder("uneven.json");
  // Equal parameters, and a first layer that takes as long as the five others.
  profile::StepProfile uneven = chain_profile();
  uneven.tape.ops[0].time *= 5;
  uneven.tape.ops[12].time *= 5;  // Its backward.
  write(options.profile, profile::to_text(uneven));
  take_schedule("auto", options.request);
  options.compare = true;
  const auto steps = steps_by_partitioner(told(options));
  ASSERT_EQ(steps.size(), partition::partitioners().size());
  for (const auto& [name, seconds] : steps) EXPECT_GE(seconds, steps.at("spillway")) << name;
  EXPECT_GT(steps.at("parameters"), 1.05 * steps.at("spillway"));
}

TEST_F(JobCommand, StoresAPlanThatPassesItsCheck) {
  JobOptions options = job();
  options.out = in_folder("job.json");
  options.request.device_memory = 1_GiB;
  output(options);
  CheckOptions check;
  check.plan = options.out;
  const json checked = told(check);
  Keys expected;
  for (const auto& [key, meaning] : documented(SPILLWAY_TEST_PLANNING_OUTPUT, "Checks"))
    expected.insert(key);
  EXPECT_EQ(keys_of(checked), expected);
  EXPECT_EQ(checked["ranks"], 3);
  EXPECT_EQ(checked["step_seconds"], told(options)["step_seconds"]);
}

TEST_F(JobCommand, TellsWhatTheSearchTriedAndWhatItAssumes) {
  JobOptions options = job();
  take_schedule("auto", options.request);
  options.micro_batches.reset();
  options.batch = 12;
  const json plan = told(options);
  EXPECT_EQ(plan["batch"], 12);
  EXPECT_EQ(12 % plan["micro_batches"].get<int>(), 0);
  std::set<std::string> variants;
  for (const json& each : plan["attempts"]) variants.insert(each["variant"]);
  EXPECT_THAT(variants, testing::IsSupersetOf({"slots=1", "chunks=2", "replicas=4"}));
  EXPECT_GT(plan["pruned"], 0);
  take_schedule("1f1b-capped:slots=1,stages", options.request);
  EXPECT_EQ(told(options)["variant"], "slots=1,stages");
}

TEST_F(JobCommand, TellsWhatWholeLayersCost) {
  JobOptions options = job();
  EXPECT_EQ(told(options)["rounding_gap"], 0.0);
  take_schedule("1f1b:stages", options.request);
  options.request.device_memory = Bytes(told(options)["peak_bytes"].get<std::uint64_t>() * 4 / 5);
  EXPECT_GT(told(options)["rounding_gap"].get<double>(), 0.001);
}

/// The chain of six layers and a loss on a node of V100s.
class JobOnMachine : public PlanningCommand {
 protected:
  JobOptions job() const {
    JobOptions options;
    options.profile = profile_;
    options.request.ranks = 4;
    options.micro_batches = 8;
    take_schedule("1f1b", options.request);
    options.cluster = SPILLWAY_TEST_CLUSTERS "/abci_v100.json";
    return options;
  }

  /// With too little memory for all stashes.
  JobOptions tight_job() const {
    JobOptions options = job();
    const auto peak = told(options)["peak_bytes"].get<std::uint64_t>();
    options.request.device_memory = Bytes(peak * 2 / 3);
    return options;
  }

  /// The description with one text in place of another one.
  std::string edited_cluster(const std::string& from, const std::string& to) const {
    std::string text = file_text(SPILLWAY_TEST_CLUSTERS "/abci_v100.json");
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    const std::string path = in_folder("edited.json");
    write(path, text);
    return path;
  }
};

TEST_F(JobOnMachine, HasTheDocumentedKeysAndNoOthers) {
  const auto page = documented(SPILLWAY_TEST_PLANNING_OUTPUT, "Many ranks");
  const json plan = told(job());
  Keys expected;
  for (const auto& [key, meaning] : page) expected.insert(key);
  EXPECT_EQ(keys_of(plan), expected);
  for (const char* key : {"hosts", "machine"})
    EXPECT_EQ(keys_within(plan[key]), keys_in(page.at(key).text)) << key;
}

TEST_F(JobOnMachine, TakesWhatTheDescriptionSays) {
  JobOptions options = job();
  const json plan = told(options);
  EXPECT_EQ(plan["device_memory_bytes"], (16160_MiB).count());
  EXPECT_EQ(plan["hosts"]["ranks_per_host"], 4);
  EXPECT_EQ(plan["hosts"]["memory_bytes"], (376_GiB).count());
  EXPECT_EQ(plan["machine"]["cluster"], "abci-v100");
  EXPECT_EQ(plan["machine"]["nodes"], 1);
  EXPECT_EQ(plan["machine"]["speed_over_profile"], nullptr);
  options.cluster.clear();
  EXPECT_GT(plan["step_seconds"], told(options)["step_seconds"]) << "messages take time there";
  // A pipeline in a node shares nothing but the ends of its messages.
  EXPECT_NEAR(plan["machine"]["step_seconds"].get<double>(), plan["step_seconds"].get<double>(),
              0.01 * plan["step_seconds"].get<double>());
}

TEST_F(JobOnMachine, DividesTimesByTheSpeedThatTheDescriptionNames) {
  JobOptions options = job();
  const double slow = told(options)["step_seconds"];
  options.cluster = edited_cluster("\"flops_per_second\": 71.9e12", "\"speed_over_profile\": 10");
  const json plan = told(options);
  EXPECT_NEAR(plan["step_seconds"].get<double>(), slow / 10, 0.05 * slow / 10);
  EXPECT_EQ(plan["machine"]["speed_over_profile"], 10.0);
}

TEST_F(JobOnMachine, ChoosesWhatIsFastestThere) {
  JobOptions options = job();
  take_schedule("auto", options.request);
  const json plan = told(options);
  const json& runs = plan["machine"]["runs"];
  ASSERT_GE(runs.size(), 12U);
  EXPECT_EQ(runs[0]["schedule"], plan["schedule"]);
  EXPECT_EQ(runs[0]["data_parallel"], plan["data_parallel"]);
  EXPECT_EQ(runs[0]["step_seconds"], plan["machine"]["step_seconds"]);
  for (std::size_t i = 1; i < runs.size(); ++i)
    EXPECT_LE(runs[i - 1]["step_seconds"], runs[i]["step_seconds"]);
}

TEST_F(JobOnMachine, ComparesOnTheMachine) {
  JobOptions options = job();
  options.request.data_parallel = 2;
  options.request.ranks = 8;  // Two nodes, whose cards the sums of all stages share.
  const json plan = told(options);
  options.compare = true;
  const json with = told(options);
  double last = 0.0;
  for (const json& row : with) {
    ASSERT_EQ(row["is_possible"], true) << row["refusal"];
    EXPECT_EQ(keys_of(row["machine"]),
              keys_in(documented(SPILLWAY_TEST_PLANNING_OUTPUT, "Comparisons")["machine"].text));
    EXPECT_GE(row["machine"]["step_seconds"].get<double>(), last);
    last = row["machine"]["step_seconds"];
    if (row["partitioner"] != "spillway") continue;
    EXPECT_EQ(row["machine"]["step_seconds"], plan["machine"]["step_seconds"]);
    EXPECT_EQ(row["step_seconds"], plan["step_seconds"]);
  }
  options.cluster.clear();
  const json without = told(options);
  EXPECT_EQ(with.size(), without.size());
  EXPECT_FALSE(without[0].contains("machine"));
  EXPECT_GT(with[0]["step_seconds"], without[0]["step_seconds"]);
}

TEST_F(JobOnMachine, ComparesPartitionersWithTheScheduleThatIsFastestThere) {
  JobOptions options = job();
  take_schedule("auto", options.request);
  options.compare = true;
  const json rows = told(options);
  std::set<std::string> schedules;
  for (const json& row : rows)
    if (row["partitioner"] != "spillway") schedules.insert(row["schedule"]);
  // The fastest, and the fastest with a stage on each rank, which may be the same.
  EXPECT_THAT(schedules.size(), ::testing::AnyOf(1U, 2U));
  for (const json& row : rows) {
    if (row["partitioner"] != "spillway" || !row["is_possible"]) continue;
    EXPECT_EQ(schedules.count(row["schedule"]), 1U) << "the fastest schedule is the first row";
    break;
  }
  EXPECT_EQ(rows.back()["has_any_data_parallel"], true);
  EXPECT_TRUE(rows.back().contains("machine"));
}

TEST_F(JobOnMachine, HoldsHostsAgainstTheirMemory) {
  JobOptions options = tight_job();
  const json ample = told(options);
  EXPECT_EQ(ample["hosts"]["swaps_to"], "hosts");
  EXPECT_GT(ample["hosts"]["peak_bytes"], 0);
  ASSERT_EQ(ample["hosts"]["per_host_bytes"].size(), 1U);
  EXPECT_EQ(ample["hosts"]["per_host_bytes"][0], ample["hosts"]["peak_bytes"]);
  std::uint64_t sum = 0;
  for (const json& rank : ample["per_rank"]) sum += rank["host_bytes"].get<std::uint64_t>();
  EXPECT_EQ(ample["hosts"]["peak_bytes"], sum) << "all ranks are on one node";
  options.rates.host_memory = 1_MiB;
  EXPECT_EQ(told(options)["hosts"]["swaps_to"], "disks");
}

TEST_F(JobOnMachine, GoesOnToDisksWithoutADescription) {
  JobOptions options = tight_job();
  options.cluster.clear();
  RateOptions& rates = options.rates;
  rates.link_out = TransferRate(8e9), rates.link_in = TransferRate(9e9), rates.host_memory = 1_GiB;
  const json ample = told(options);
  EXPECT_EQ(ample["hosts"]["swaps_to"], "hosts");
  EXPECT_EQ(ample["hosts"]["ranks_per_host"], 1);
  EXPECT_EQ(ample["hosts"]["memory_bytes"], (1_GiB).count());
  rates.host_memory = 2_MiB;
  const json small = told(options);  // It recomputes instead.
  EXPECT_GT(small["step_seconds"], ample["step_seconds"]);
  for (const json& rank : small["per_rank"]) EXPECT_LE(rank["host_bytes"], (2_MiB).count());
  rates.disk_out = TransferRate(8e9), rates.disk_in = TransferRate(9e9);
  options.ranks_per_host = 1;
  const json behind = told(options);
  EXPECT_EQ(behind["hosts"]["swaps_to"], "disks");
  EXPECT_DOUBLE_EQ(behind["step_seconds"].get<double>(), ample["step_seconds"].get<double>());
  rates.disk_out = TransferRate(0.1e9),
  rates.disk_in = TransferRate(0.1e9);  // Slower than to recompute.
  EXPECT_EQ(told(options)["step_seconds"], small["step_seconds"]);
}

TEST_F(JobOnMachine, SlowsItsLinksDown) {
  JobOptions options = tight_job();
  const json fast = told(options);
  options.rates.link_out = options.rates.link_in = TransferRate(0.5e9);
  const json slow = told(options);
  EXPECT_GT(slow["step_seconds"], fast["step_seconds"]);
}

}  // namespace
}  // namespace spillway::cli
