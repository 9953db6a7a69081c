#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "planning/stored_job.h"
#include "planning_command.h"

namespace spillway::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A stored plan that brings the machine along which it was made for.
class MachineOfPlan : public PlanningCommand {
 protected:
  PlanOptions planning() const {
    PlanOptions options;
    options.common.profile = profile_;
    options.job.ranks = std::string("4");  // A literal makes g++ 12 warn of nothing.
    options.job.data_parallel = std::string("2");
    options.job.micro_batches = std::string("8");
    options.job.schedule = "1f1b";
    options.job.topology = machine_;
    options.out = job_;
    return options;
  }

  SimulateOptions running(const std::string& ranks = {}) const {
    SimulateOptions options;
    options.common.profile = job_;
    options.ranks = ranks;
    return options;
  }

  json told_of(SimulateOptions options) const {
    options.common.json = true;
    return json::parse(simulate(options));
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
  const json run = told_of(running());
  EXPECT_EQ(run["cluster"], "abci-v100");
  EXPECT_EQ(run["ranks"], 4);
  EXPECT_DOUBLE_EQ(run["step_seconds"].get<double>(),
                   planned["machine"]["step_seconds"].get<double>());
  EXPECT_EQ(told_of(running("4096"))["pipelines"], 2048);
  SimulateOptions elsewhere = running();
  elsewhere.cluster = "dgx_a100";
  EXPECT_EQ(told_of(elsewhere)["cluster"], "dgx-a100");
}

TEST_F(MachineOfPlan, IsAsOptionsLeftItToTheJob) {
  write(machine_, file_text(SPILLWAY_TEST_CLUSTERS "/abci_v100.json"));
  PlanOptions options = planning();
  options.job.device_memory = "1GiB";
  options.common.rates.host_memory = "16GiB";
  plan(options);
  const auto cluster = machine_of(planner::parse_job_file(file_text(job_), job_), job_);
  ASSERT_TRUE(cluster);
  EXPECT_EQ(cluster->device.memory, 1_GiB);
  EXPECT_EQ(cluster->node.host_memory, 16_GiB);
}

TEST_F(MachineOfPlan, IsCheckedWithThePlan) {
  write(machine_, file_text(SPILLWAY_TEST_CLUSTERS "/abci_v100.json"));
  plan(planning());
  auto file = nlohmann::ordered_json::parse(file_text(job_));
  file["cluster"]["node"]["devices"] = 0;
  write(job_, file.dump());
  PlanOptions check;
  check.job.check = job_;
  EXPECT_THAT(plan_refusal(check), HasSubstr(job_ + ", cluster: cluster abci-v100"));
  file["cluster"]["node"] = "two";
  write(job_, file.dump());
  EXPECT_THAT(simulate_refusal(running()), HasSubstr(job_ + ", cluster: node is"));
}

TEST_F(MachineOfPlan, IsAskedForWhereThereIsNone) {
  PlanOptions options = planning();
  options.job.topology.clear();
  plan(options);
  const auto refused = [&](const auto& change) {
    SimulateOptions given = running();
    change(given);
    return simulate_refusal(given);
  };
  const auto names_the_next_step =
      AllOf(HasSubstr(job_ + " was not made for a machine"), HasSubstr("--cluster FILE"));
  EXPECT_THAT(refused([](SimulateOptions&) {}), names_the_next_step);
  EXPECT_THAT(refused([](SimulateOptions& w) { w.ranks = "8"; }), names_the_next_step);
  EXPECT_THAT(refused([](SimulateOptions& w) { w.update = "hosts"; }), names_the_next_step);
  // No plan at all.
  EXPECT_THAT(refused([&](SimulateOptions& w) { w.common.profile = profile_, w.ranks = "8"; }),
              AllOf(HasSubstr(profile_), HasSubstr("--ranks COUNT --out FILE")));
}

TEST_F(MachineOfPlan, KnowsPlansByTheirFirstLines) {
  EXPECT_FALSE(is_stored_job(profile_));
  EXPECT_FALSE(is_stored_job(in_folder("none.json")));
  EXPECT_FALSE(is_stored_job(""));
  PlanOptions options = planning();
  options.job.topology.clear();
  plan(options);
  EXPECT_TRUE(is_stored_job(job_));
}

}  // namespace
}  // namespace spillway::cli
