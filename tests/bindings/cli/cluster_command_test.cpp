#include <cmath>
#include <nlohmann/json.hpp>

#include "planning_command.h"
#include "support/documented_keys.h"
#include "support/golden_part.h"

namespace spillway::cli {
namespace {

using nlohmann::json;

/// A stored plan of the chain, and the description of a V100 machine.
class ClusterCommand : public PlanningCommand {
 protected:
  ClusterCommand() { store(job_, 4, 2); }

  /// A plan for `ranks` devices in `data_parallel` pipelines of two ranks.
  void store(const std::string& path, std::uint32_t ranks, std::uint32_t data_parallel) const {
    JobOptions options;
    options.profile = profile_;
    options.request.ranks = ranks;
    options.request.data_parallel = data_parallel;
    options.micro_batches = 8;
    take_schedule("1f1b", options.request);
    options.out = path;
    output(options);
  }

  ClusterOptions on_cluster(std::optional<std::uint32_t> ranks = {}) const {
    ClusterOptions options;
    options.plan = job_;
    options.cluster = SPILLWAY_TEST_CLUSTERS "/abci_v100.json";
    options.ranks = ranks;
    return options;
  }

  /// The description with one text in place of another one, wherever that stands.
  std::string edited_cluster(const std::string& from, const std::string& to) const {
    std::string text = file_text(SPILLWAY_TEST_CLUSTERS "/abci_v100.json");
    std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    for (; at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
    write(in_folder("edited.json"), text);
    return in_folder("edited.json");
  }

  /// The plan, with stages that swap 300 MB of each micro-batch, of which two are in flight on the
  /// first one.
  ClusterOptions swapping() const {
    ClusterOptions options = on_cluster();
    json file = json::parse(file_text(job_));
    for (json& stage : file["stages"]) {
      stage["swapped_bytes"] = 300'000'000;
      stage["whole_stash_bytes"] = 300'000'000 + stage["stash_bytes"].get<std::uint64_t>();
    }
    file["links"]["host_link"]["bytes_per_second"] = 1e18;  // No wait, so that all figures hold.
    file["figures"]["host_bytes"] = {600'000'000, 300'000'000};
    options.plan = in_folder("swapping.json");
    write(options.plan, file.dump());
    return options;
  }

  static double load_of(const json& run, const std::string& kind) {
    for (const json& links : run["links"])
      if (links["class"] == kind) return links["mean_load"].get<double>();
    return -1.0;
  }

  const std::string job_ = in_folder("job.json");
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
  const json many = told(on_cluster(4096));
  EXPECT_EQ(many["pipelines"], 2048);
  EXPECT_GT(many["step_seconds"], few["step_seconds"]) << "sums take longer among more";
}

TEST_F(ClusterCommand, WritesATraceOfTheRanksThatStandForAll) {
  ClusterOptions options = on_cluster(256);
  options.trace = in_folder("trace.json");
  output(options);
  const json trace = json::parse(file_text(options.trace));
  std::set<int> ranks;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X") ranks.insert(event["pid"].get<int>());
  EXPECT_EQ(ranks.size(), 2U);
}

// Failures were those of all 1,088 nodes, whatever the job.
TEST_F(ClusterCommand, TellsWhatFailuresOfItsNodesLeave) {
  ClusterOptions options = on_cluster();
  options.cluster = edited_cluster(R"("network": {)",
                                   R"("failures": {"node_mean_seconds": 3e4,
      "checkpoint_interval_seconds": 600, "checkpoint_seconds": 30, "restart_seconds": 60},
    "network": {)");
  const auto share = [](double nodes) {
    const double mean = 3e4 / nodes;
    return 600.0 / (mean * std::exp(60.0 / mean) * std::expm1(630.0 / mean));
  };
  const json few = told(options);
  EXPECT_EQ(few["nodes"], 1);
  EXPECT_NEAR(few["useful_share"].get<double>(), share(1.0), 1e-12);
  options.ranks = 400;
  const json many = told(options);
  EXPECT_EQ(many["nodes"], 100);
  EXPECT_NEAR(many["useful_share"].get<double>(), share(100.0), 1e-12);
}

// Stages that swap had waits in their times and loaded no link, so sharing one cost nothing.
TEST_F(ClusterCommand, LoadsLinksWithWhatStagesSwap) {
  const ClusterOptions options = swapping();
  const json shared = told(options);
  EXPECT_GT(load_of(shared, "PCIe"), 0.1);
  EXPECT_EQ(load_of(told(on_cluster()), "PCIe"), 0.0);
  EXPECT_GT(shared["exposed_swap_seconds"].get<double>(), 0.0);
  EXPECT_GT(shared["step_seconds"], told(on_cluster())["step_seconds"]);
  ClusterOptions apart = options;
  apart.cluster = edited_cluster(R"("devices_per_switch": 2)", R"("devices_per_switch": 1)");
  EXPECT_GT(shared["step_seconds"].get<double>(), 1.1 * told(apart)["step_seconds"].get<double>());
}

TEST_F(ClusterCommand, CountsWhatHostsHold) {
  ClusterOptions options = swapping();
  // Two pipelines on a node, of ranks with two micro-batches in flight and with one.
  EXPECT_EQ(told(options)["host_bytes"], 2 * (2 + 1) * 300'000'000ULL);
  options.cluster = edited_cluster("\"376GiB\"", "\"1GiB\"");
  GoldenPart golden;
  golden.add(refusal(options));
  options.swap_to = cluster::SwapTarget::kDisk;
  EXPECT_EQ(told(options)["host_bytes"], 0);
}

// Times were those of the profile on any device, and nothing said so.
TEST_F(ClusterCommand, ComputesAsFastAsItIsTold) {
  ClusterOptions options = on_cluster();
  options.speedup = 4.0;
  const json fast = told(options);
  EXPECT_EQ(fast["speedup"], 4.0);
  const double plain = told(on_cluster())["step_seconds"];
  EXPECT_LT(fast["step_seconds"].get<double>(), 0.3 * plain);
  EXPECT_GT(fast["step_seconds"].get<double>(), 0.25 * plain) << "links are as fast as before";
}

TEST_F(ClusterCommand, FitsLinksToMessagesThatWereMeasured) {
  ClusterOptions options = on_cluster(64);
  options.cluster = edited_cluster(R"({"latency_seconds": 14e-6, "bytes_per_second": 12.5e9})",
                                   R"({"samples": "nic.csv"})");
  write(in_folder("nic.csv"), "bytes,seconds\n0,14e-6\n125000000,10014e-6\n");
  EXPECT_NEAR(told(options)["step_seconds"].get<double>(),
              told(on_cluster(64))["step_seconds"].get<double>(), 1e-9);
}

TEST_F(ClusterCommand, PlacesRanksAsTold) {
  ClusterOptions options = on_cluster(64);
  const json plain = told(options);
  EXPECT_EQ(plain["placement"], "pipeline");
  options.placement = cluster::PlacementOrder::kDataParallelFirst;
  const json beside = told(options);
  EXPECT_EQ(beside["placement"], "data-parallel");
  // 32 pipelines of two: sums within nodes, messages between them.
  EXPECT_NE(beside["step_seconds"], plain["step_seconds"]);
}

TEST_F(ClusterCommand, UpdatesOnHosts) {
  ClusterOptions options = on_cluster(64);
  const json on_devices = told(options);
  options.update = cluster::UpdatePlace::kHost;
  const json on_hosts = told(options);
  EXPECT_EQ(on_hosts["update"], "hosts");
  const auto has_host_links = [](const json& run) {
    for (const json& load : run["links"])
      if (load["class"] == "host optimizer") return load["mean_load"] > 0.0;
    return false;
  };
  EXPECT_TRUE(has_host_links(on_hosts));
  EXPECT_FALSE(has_host_links(on_devices));
  EXPECT_LT(on_hosts["peak_bytes"], on_devices["peak_bytes"]) << "states are on the hosts";
}

TEST_F(ClusterCommand, MakesDevicesStraggle) {
  ClusterOptions options = on_cluster(64);
  const double even = told(options)["step_seconds"];
  options.stragglers = 0.0;
  EXPECT_EQ(told(options)["step_seconds"].get<double>(), even);
  options.stragglers = 0.05;
  const json slow = told(options);
  EXPECT_GT(slow["step_seconds"].get<double>(), 1.02 * even);
  EXPECT_EQ(slow["simulated_pipelines"], 32);
}

TEST_F(ClusterCommand, SwapsToHostsOrDisks) {
  ClusterOptions options = on_cluster();
  EXPECT_EQ(told(options)["swaps_to"], "hosts");
  options.swap_to = cluster::SwapTarget::kDisk;
  EXPECT_EQ(told(options)["swaps_to"], "disks");
}

}  // namespace
}  // namespace spillway::cli
