#include <nlohmann/json.hpp>

#include "planning/stored_job.h"
#include "planning_command.h"
#include "support/golden_part.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

/// A stored plan that brings the machine along which it was made for.
class MachineOfPlan : public PlanningCommand {
 protected:
  JobOptions planning() const {
    JobOptions options;
    options.profile = profile_;
    options.request.ranks = 4;
    options.request.data_parallel = 2;
    options.micro_batches = 8;
    take_schedule("1f1b", options.request);
    options.cluster = machine_;
    options.out = job_;
    return options;
  }

  ClusterOptions running(std::optional<std::uint32_t> ranks = {}) const {
    ClusterOptions options;
    options.plan = job_;
    options.ranks = ranks;
    return options;
  }

  const std::string job_ = in_folder("job.json");
  const std::string machine_ = in_folder("machine.json");
};

TEST_F(MachineOfPlan, IsWhereItRunsIfNoneIsNamed) {
  // A copy that is gone afterwards, with a file beside it: the plan has all of it.
  std::string text = file_text(SPILLWAY_TEST_CLUSTERS "/abci_v100.json");
  const std::string link = R"({"latency_seconds": 14e-6, "bytes_per_second": 12.5e9})";
  text.replace(text.find(link), link.size(), R"({"samples": "nic.csv"})");
  write(machine_, text);
  write(in_folder("nic.csv"), "bytes,seconds\n0,14e-6\n125000000,10014e-6\n");
  const json planned = told(planning());
  std::remove(machine_.c_str());
  std::remove(in_folder("nic.csv").c_str());
  const json run = told(running());
  EXPECT_EQ(run["cluster"], "abci-v100");
  EXPECT_EQ(run["ranks"], 4);
  EXPECT_DOUBLE_EQ(run["step_seconds"].get<double>(),
                   planned["machine"]["step_seconds"].get<double>());
  EXPECT_EQ(told(running(4096))["pipelines"], 2048);
  ClusterOptions elsewhere = running();
  elsewhere.cluster = SPILLWAY_TEST_CLUSTERS "/dgx_a100.json";
  EXPECT_EQ(told(elsewhere)["cluster"], "dgx-a100");
}

TEST_F(MachineOfPlan, IsAsOptionsLeftItToTheJob) {
  write(machine_, file_text(SPILLWAY_TEST_CLUSTERS "/abci_v100.json"));
  JobOptions options = planning();
  options.request.device_memory = 1_GiB;
  options.rates.host_memory = 16_GiB;
  output(options);
  const auto cluster = machine_of(job::parse_job_file(file_text(job_), job_), job_);
  ASSERT_TRUE(cluster);
  EXPECT_EQ(cluster->device.memory, 1_GiB);
  EXPECT_EQ(cluster->node.host_memory, 16_GiB);
}

TEST_F(MachineOfPlan, IsReadWithThePlan) {
  write(machine_, file_text(SPILLWAY_TEST_CLUSTERS "/abci_v100.json"));
  output(planning());
  auto file = nlohmann::ordered_json::parse(file_text(job_));
  file["cluster"]["node"] = "two";
  write(job_, file.dump());
  GoldenPart golden;
  golden.add(refusal(running()));
}

TEST_F(MachineOfPlan, KnowsPlansByTheirFirstLines) {
  EXPECT_FALSE(is_stored_job(profile_));
  EXPECT_FALSE(is_stored_job(in_folder("none.json")));
  EXPECT_FALSE(is_stored_job(""));
  JobOptions options = planning();
  options.cluster.clear();
  output(options);
  EXPECT_TRUE(is_stored_job(job_));
}

}  // namespace
}  // namespace spillway::cli
