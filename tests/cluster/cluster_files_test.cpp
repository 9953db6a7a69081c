#include <gmock/gmock.h>

#include <cmath>

#include "small_clusters.h"
#include "spillway/base/error.h"
#include "support/damaged_text.h"
#include "support/error_text.h"
#include "support/file_text.h"
#include "support/golden_part.h"
#include "support/sanitized.h"

namespace spillway::cluster {
namespace {

std::string text_of(const std::string& name) {
  return file_text(std::string(SPILLWAY_TEST_CLUSTERS) + "/" + name);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string fault_of(const std::string& text) {
  return error_text<ConfigError>([&] { parse_cluster(text, "my.json"); });
}

TEST(ClusterFiles, DescribeTheMachinesThatTheyName) {
  const Cluster abci = parse_cluster(text_of("abci_v100.json"), "abci_v100.json");
  EXPECT_EQ(abci.device_count(), 4352U);
  EXPECT_EQ(abci.switches_per_node(), 2U);
  EXPECT_EQ(abci.device.memory, 16160_MiB);
  EXPECT_DOUBLE_EQ(abci.node.nvlink->rate.bytes_per_second(), 150e9);
  EXPECT_DOUBLE_EQ(abci.network.oversubscription, 3.0);
  const Cluster a100 = parse_cluster(text_of("dgx_a100.json"), "dgx_a100.json");
  EXPECT_EQ(a100.device_count(), 1120U);
  EXPECT_TRUE(a100.network.has_rails);
  const Cluster h200 = parse_cluster(text_of("dgx_h200.json"), "dgx_h200.json");
  EXPECT_EQ(h200.device_count(), 4096U);
  for (const Cluster& cluster : {abci, a100, h200}) EXPECT_GE(cluster.sources.size(), 7U);
}

TEST(ClusterFiles, RefuseWhatTheyCannotMean) {
  GoldenPart golden;
  const std::string good = text_of("abci_v100.json");
  golden.add(fault_of(good));
  golden.add(fault_of("[]"));
  golden.add(fault_of(good.substr(0, good.size() / 2)));
  golden.add(fault_of(replaced(good, "\"nics\": 2", "\"nics\": 0")));
  golden.add(fault_of(replaced(good, "\"nics\"", "\"cards\"")));
  golden.add(fault_of(replaced(good, "16160MiB", "16160")));
  golden.add(
      fault_of(replaced(good, "\"flops_per_second\": 71.9e12", "\"speed_over_profile\": -2")));
  golden.add(
      fault_of(replaced(good, "\"flops_per_second\": 71.9e12", "\"speed_over_profile\": 1e4")));
  golden.add(fault_of(replaced(good, "16160MiB", "0B")));
  golden.add(fault_of(replaced(good, "abci-v100", std::string(81, 'x'))));
  golden.add(fault_of(replaced(good, "16160MiB", std::string(1000, '7'))));
  golden.add(fault_of(replaced(good, "150e9", "\"fast\"")));
  golden.add(fault_of(
      replaced(good, "\"nodes_per_leaf\": 34", "\"nodes_per_leaf\": 34, \"wiring\": \"rail\"")));
}

std::string with_stragglers_and_failures() {
  return replaced(
      text_of("abci_v100.json"), "\"nodes\": 1088,",
      R"("nodes": 3, "stragglers": {"law": "exponential", "spread": 0.1, "unit": "node"},
         "failures": {"node_mean_seconds": 1e7, "checkpoint_interval_seconds": 600,
                      "checkpoint_seconds": 20, "restart_seconds": 300},)");
}

TEST(ClusterFiles, AreWrittenAsTheyWereRead) {
  const Cluster read =
      parse_cluster(replaced(with_stragglers_and_failures(), "\"flops_per_second\": 71.9e12",
                             "\"flops_per_second\": 71.9e12, \"speed_over_profile\": 2.5"),
                    "my.json");
  const std::string text = to_text(read);
  const Cluster again = parse_cluster(text, "again.json");
  EXPECT_EQ(to_text(again), text);
  EXPECT_EQ(again.name, "abci-v100");
  EXPECT_EQ(again.nodes, 3U);
  EXPECT_EQ(again.device.memory, 16160_MiB);
  EXPECT_EQ(again.device.flops_per_second, 71.9e12);
  EXPECT_EQ(again.device.speed_over_profile, 2.5);
  EXPECT_EQ(again.node.devices, 4U);
  EXPECT_EQ(again.node.devices_per_switch, 2U);
  EXPECT_EQ(again.node.uplink.rate.bytes_per_second(), 12e9);
  EXPECT_EQ(again.node.nvlink->latency_seconds, 3.4e-6);
  EXPECT_EQ(again.node.nics, 2U);
  EXPECT_EQ(again.node.nic.rate.bytes_per_second(), 12.5e9);
  EXPECT_EQ(again.node.host_memory, read.node.host_memory);
  EXPECT_EQ(again.node.host_update_parameters_per_second, 6.4e9);
  EXPECT_EQ(again.node.disk_write_rate.bytes_per_second(), 1.05e9);
  EXPECT_EQ(again.network.nodes_per_leaf, 34U);
  EXPECT_EQ(again.network.oversubscription, 3.0);
  EXPECT_EQ(device_slowdowns(again), device_slowdowns(read));
  EXPECT_EQ(useful_share(again.failures, 3), useful_share(read.failures, 3));
  EXPECT_EQ(again.sources.size(), read.sources.size());
  const Cluster rails = parse_cluster(text_of("dgx_a100.json"), "dgx_a100.json");
  EXPECT_TRUE(parse_cluster(to_text(rails), "again.json").network.has_rails);
}

/// It is refused in one sentence that names the file, or what is read of it makes sense. Whether it
/// was read.
bool is_read_or_refused(const std::string& text) {
  try {
    const Cluster cluster = parse_cluster(text, "my.json");
    EXPECT_EQ(to_text(parse_cluster(to_text(cluster), "again")), to_text(cluster)) << text;
    const double share = useful_share(cluster.failures, cluster.nodes);
    EXPECT_TRUE(share >= 0.0 && share <= 1.0 + 1e-9) << share << "\n" << text;
    const double interval = best_checkpoint_interval(cluster.failures, cluster.nodes);
    EXPECT_TRUE(interval >= 0.0 && interval < 1e15) << interval << "\n" << text;
    if (cluster.device_count() > 10'000) return true;
    const ClusterLinks links(cluster);
    EXPECT_GT(links.size(), 0U);
    for (std::uint32_t link = 0; link < links.size(); ++link)
      EXPECT_TRUE(links.rate(link) > 0.0 && links.rate(link) < 1e35) << text;
    for (const double slowdown : device_slowdowns(cluster))
      EXPECT_TRUE(slowdown >= 1.0 && slowdown < 1e15) << text;
    // A figure that no machine has must not make endless times.
    if (cluster.device_count() < 2) return true;
    const Job job = small_job(complete(planner_schedule::generated("1f1b", 1, 2), 2), 1e6);
    const double seconds = simulate_job(job, cluster).step_seconds;
    EXPECT_TRUE(std::isfinite(seconds) && seconds >= 6.0) << seconds << "\n" << text;
    return true;
  } catch (const ConfigError& error) {
    const std::string sentence = error.what();
    EXPECT_THAT(sentence, ::testing::StartsWith("my.json")) << text;
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << text;
    EXPECT_LE(sentence.size(), 400U) << sentence.substr(0, 160);
    return false;
  }
}

TEST(ClusterFiles, AreReadOrRefusedHoweverDamaged) {
  const std::string texts[] = {text_of("dgx_a100.json"), with_stragglers_and_failures()};
  std::uint32_t read = 0;
  const auto rounds = tries<std::uint64_t>(20000, 2000);
  for (std::uint64_t seed = 0; seed < rounds; ++seed)
    read += is_read_or_refused(DamagedText(seed)(texts[seed % 2])) ? 1 : 0;
  EXPECT_GT(read, rounds / 100);
}

TEST(ClusterFiles, AreReadOrRefusedWithExtremeNumbers) {
  std::uint32_t read = 0;
  for (const std::string& text : {text_of("dgx_a100.json"), with_stragglers_and_failures()})
    for_each_extreme(
        text, [&](const std::string& changed) { read += is_read_or_refused(changed) ? 1 : 0; });
  EXPECT_GT(read, 100U);
}

TEST(ClusterFiles, MayNameMeasuredMessagesInsteadOfALink) {
  GoldenPart golden;
  const std::string text = replaced(
      text_of("abci_v100.json"), R"("nic": {"latency_seconds": 14e-6, "bytes_per_second": 12.5e9})",
      R"("nic": {"samples": "nic.csv"})");
  const auto read = [](const std::string& file) {
    EXPECT_EQ(file, "nic.csv");
    return std::string("bytes,seconds\n1e6,101e-6\n1e8,10001e-6\n");
  };
  const Cluster cluster = parse_cluster(text, "my.json", read);
  EXPECT_NEAR(cluster.node.nic.latency_seconds, 1e-6, 1e-10);
  EXPECT_NEAR(cluster.node.nic.rate.bytes_per_second(), 1e10, 1.0);
  golden.add(fault_of(text));
  const auto fault = [&](const char* samples) {
    return error_text<ConfigError>([&] {
      parse_cluster(text, "my.json", [&](const std::string&) { return std::string(samples); });
    });
  };
  golden.add(fault("1e6,fast\n"));
  golden.add(fault("1e6,1\n"));
  golden.add(fault("1,1\n2,3\n"));
}

TEST(ClusterFiles, MayHaveStragglersAndFailures) {
  const Cluster cluster = parse_cluster(with_stragglers_and_failures(), "my.json");
  EXPECT_EQ(cluster.stragglers.law, StragglerLaw::kExponential);
  EXPECT_TRUE(cluster.stragglers.is_by_node);
  EXPECT_DOUBLE_EQ(cluster.failures.checkpoint_interval_seconds, 600.0);
}

}  // namespace
}  // namespace spillway::cluster
