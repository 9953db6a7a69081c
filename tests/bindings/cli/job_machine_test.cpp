#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "planning_command.h"
#include "support/documented_keys.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

/// The chain of six layers and a loss on a node of V100s.
class JobMachine : public PlanningCommand {
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

TEST_F(JobMachine, HasTheDocumentedKeysAndNoOthers) {
  const auto page = documented(SPILLWAY_TEST_PLANNING_OUTPUT, "Many ranks");
  const json plan = told(job());
  Keys expected;
  for (const auto& [key, meaning] : page) expected.insert(key);
  EXPECT_EQ(keys_of(plan), expected);
  for (const char* key : {"hosts", "machine"})
    EXPECT_EQ(keys_within(plan[key]), keys_in(page.at(key).text)) << key;
}

TEST_F(JobMachine, TakesWhatTheDescriptionSays) {
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

TEST_F(JobMachine, DividesTimesByTheSpeedThatTheDescriptionNames) {
  JobOptions options = job();
  const double slow = told(options)["step_seconds"];
  options.cluster = edited_cluster("\"flops_per_second\": 71.9e12", "\"speed_over_profile\": 10");
  const json plan = told(options);
  EXPECT_NEAR(plan["step_seconds"].get<double>(), slow / 10, 0.05 * slow / 10);
  EXPECT_EQ(plan["machine"]["speed_over_profile"], 10.0);
}

TEST_F(JobMachine, ChoosesWhatIsFastestThere) {
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

TEST_F(JobMachine, ComparesOnTheMachine) {
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

TEST_F(JobMachine, ComparesPartitionersWithTheScheduleThatIsFastestThere) {
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

TEST_F(JobMachine, HoldsHostsAgainstTheirMemory) {
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

TEST_F(JobMachine, GoesOnToDisksWithoutADescription) {
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

TEST_F(JobMachine, SlowsItsLinksAndDisksDown) {
  JobOptions options = tight_job();
  const json fast = told(options);
  options.rates.link_out = options.rates.link_in = TransferRate(0.5e9);
  const json slow = told(options);
  EXPECT_GT(slow["step_seconds"], fast["step_seconds"]);
}

}  // namespace
}  // namespace spillway::cli
