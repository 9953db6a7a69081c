#include "planning/cluster_command.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "planning_command.h"
#include "support/documented_keys.h"

namespace spillway::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Two stored plans of the chain, and the description of a V100 machine.
class ClusterCommand : public PlanningCommand {
 protected:
  ClusterCommand() {
    store(job_, "4", "2");
    store(single_, "2", "1");
  }

  /// A plan for `ranks` devices in `groups` pipelines of two ranks.
  void store(const std::string& path, const std::string& ranks, const std::string& groups) const {
    PlanWords words;
    words.common.profile = profile_;
    words.job.ranks = ranks;
    words.job.groups = groups;
    words.job.micro_batches = "8";
    words.job.schedule = "1f1b";
    words.out = path;
    plan(words);
  }

  SimulateWords on_cluster(const std::string& ranks = {}) const {
    SimulateWords words;
    words.common.profile = job_;
    words.cluster = SPILLWAY_TEST_CLUSTERS "/abci_v100.json";
    words.ranks = ranks;
    return words;
  }

  json told(SimulateWords words) const {
    words.common.json = true;
    return json::parse(simulate(words));
  }

  /// The description with one text in place of another one.
  std::string edited_cluster(const std::string& from, const std::string& to) const {
    std::ifstream file(SPILLWAY_TEST_CLUSTERS "/abci_v100.json");
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    const std::string path = in_folder("edited.json");
    write(path, text);
    return path;
  }

  const std::string job_ = in_folder("job.json");
  const std::string single_ = in_folder("single.json");
};

TEST_F(ClusterCommand, HasTheDocumentedKeysAndNoOthers) {
  const auto page = documented(SPILLWAY_TEST_PLANNING_OUTPUT, "Clusters");
  const json run = told(on_cluster());
  Keys expected;
  for (const auto& [key, meaning] : page) expected.insert(key);
  EXPECT_EQ(keys_of(run), expected);
  EXPECT_EQ(keys_within(run["links"]), keys_in(page.at("links").text));
}

TEST_F(ClusterCommand, RunsThePlanAsItIs) {
  const json run = told(on_cluster());
  EXPECT_EQ(run["ranks"], 4);
  EXPECT_EQ(run["pipelines"], 2);
  // The plan was made without links, so those of the machine only add.
  EXPECT_GT(run["step_seconds"], run["planned_step_seconds"]);
  EXPECT_LT(run["step_seconds"].get<double>(), 2 * run["planned_step_seconds"].get<double>());
  EXPECT_EQ(run["useful_share"], 1.0);
}

TEST_F(ClusterCommand, RunsItOnThousandsOfRanks) {
  const json few = told(on_cluster());
  const json many = told(on_cluster("4096"));
  EXPECT_EQ(many["pipelines"], 2048);
  EXPECT_GT(many["step_seconds"], few["step_seconds"]) << "sums take longer among more";
  EXPECT_THAT(simulate(on_cluster("4096")),
              AllOf(HasSubstr("2048 pipelines of 2 ranks"), HasSubstr("abci-v100: 1088 nodes of 4"),
                    HasSubstr("per step; the plan says"), HasSubstr("NVLink"),
                    ::testing::Not(HasSubstr("{"))));
}

TEST_F(ClusterCommand, WritesATraceOfTheRanksThatStandForAll) {
  SimulateWords words = on_cluster("256");
  words.trace = in_folder("trace.json");
  EXPECT_THAT(simulate(words), HasSubstr("trace of 2 ranks"));
  std::ifstream file(words.trace);
  const json trace = json::parse(file);
  std::set<int> ranks;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X") ranks.insert(event["pid"].get<int>());
  EXPECT_EQ(ranks.size(), 2U);
}

TEST_F(ClusterCommand, TracesNoMoreRanksThanCanBeLookedAt) {
  SimulateWords words = on_cluster("256");
  words.cluster = edited_cluster(R"("network": {)", R"("stragglers": {"law": "uniform",
      "spread": 0.1}, "network": {)");
  words.trace = in_folder("trace.json");
  EXPECT_THAT(simulate(words), AllOf(HasSubstr("every rank"), HasSubstr("trace of 64 ranks")));
}

TEST_F(ClusterCommand, TellsWhatFailuresLeave) {
  SimulateWords words = on_cluster();
  words.cluster = edited_cluster(R"("network": {)",
                                 R"("failures": {"node_mean_seconds": 3e6,
      "checkpoint_interval_seconds": 600, "checkpoint_seconds": 30, "restart_seconds": 60},
    "network": {)");
  EXPECT_LT(told(words)["useful_share"], 0.95);
  EXPECT_THAT(simulate(words), HasSubstr("of the time, with checkpoints every"));
}

TEST_F(ClusterCommand, RefusesWhatDoesNotFitTogether) {
  const auto refused = [&](const auto& change) {
    SimulateWords words = on_cluster();
    change(words);
    return simulate_refusal(words);
  };
  EXPECT_THAT(refused([](SimulateWords& w) { w.cluster.clear(), w.ranks = "8"; }),
              HasSubstr("name that with --cluster FILE"));
  EXPECT_THAT(refused([](SimulateWords& w) { w.ranks = "7"; }),
              HasSubstr("--ranks 7 is no multiple of the 2 ranks of a pipeline"));
  EXPECT_THAT(refused([](SimulateWords& w) { w.ranks = "many"; }), HasSubstr("--ranks: 'many'"));
  EXPECT_THAT(refused([](SimulateWords& w) { w.ranks = "8192"; }), HasSubstr("4352"));
  EXPECT_THAT(refused([](SimulateWords& w) { w.common.budget = "1GiB"; }),
              HasSubstr("--budget 1GiB has no place beside --cluster"));
  EXPECT_THAT(refused([&](SimulateWords& w) { w.common.profile = single_, w.ranks = "4"; }),
              AllOf(HasSubstr("sums no gradients"), HasSubstr("--groups 2 or more")));
  EXPECT_THAT(refused([&](SimulateWords& w) { w.common.profile = profile_; }), HasSubstr(profile_));
  EXPECT_THAT(refused([&](SimulateWords& w) { w.cluster = job_; }), HasSubstr(job_));
  EXPECT_THAT(refused([&](SimulateWords& w) { w.cluster = in_folder("none.json"); }),
              HasSubstr("none.json"));
  EXPECT_THAT(
      refused([&](SimulateWords& w) { w.cluster = edited_cluster("\"16160MiB\"", "\"8MiB\""); }),
      AllOf(HasSubstr("on its fullest rank"), HasSubstr("--device-memory 8MiB")));
  EXPECT_THAT(refused([&](SimulateWords& w) { w.trace = w.common.profile; }), HasSubstr("--trace"));
}

}  // namespace
}  // namespace spillway::cli
