#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "small_clusters.h"
#include "spillway/base/error.h"
#include "support/damaged_text.h"

namespace spillway::planner {
namespace {

std::string text_of(const std::string& name) {
  std::ifstream file(std::string(SPILLWAY_TEST_CLUSTERS) + "/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string fault_of(const std::string& text) {
  try {
    parse_cluster(text, "my.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no fault";
}

TEST(ClusterFiles, DescribeTheMachinesThatTheyName) {
  const Cluster abci = parse_cluster(text_of("abci_v100.json"), "abci_v100.json");
  EXPECT_EQ(abci.device_count(), 4352U);
  EXPECT_EQ(abci.switches_per_node(), 2U);
  EXPECT_EQ(abci.device.memory, 16160_MiB);
  EXPECT_DOUBLE_EQ(abci.node.nvlink->bytes_per_second, 150e9);
  EXPECT_DOUBLE_EQ(abci.network.oversubscription, 3.0);
  const Cluster a100 = parse_cluster(text_of("dgx_a100.json"), "dgx_a100.json");
  EXPECT_EQ(a100.device_count(), 1120U);
  EXPECT_TRUE(a100.network.has_rails);
  const Cluster h200 = parse_cluster(text_of("dgx_h200.json"), "dgx_h200.json");
  EXPECT_EQ(h200.device_count(), 4096U);
  for (const Cluster& cluster : {abci, a100, h200}) EXPECT_GE(cluster.sources.size(), 7U);
}

TEST(ClusterFiles, RefuseWhatTheyCannotMean) {
  const std::string good = text_of("abci_v100.json");
  EXPECT_EQ(fault_of(good), "no fault");
  EXPECT_THAT(fault_of("[]"), ::testing::StartsWith("my.json"));
  EXPECT_THAT(fault_of(good.substr(0, good.size() / 2)), ::testing::StartsWith("my.json"));
  EXPECT_THAT(fault_of(replaced(good, "\"nics\": 2", "\"nics\": 0")),
              ::testing::StartsWith("my.json: cluster abci-v100: 1088 nodes have no network card"));
  EXPECT_THAT(fault_of(replaced(good, "\"nics\"", "\"cards\"")), ::testing::HasSubstr("cards"));
  EXPECT_THAT(fault_of(replaced(good, "16160MiB", "16160")), ::testing::HasSubstr("memory"));
  EXPECT_THAT(fault_of(replaced(good, "150e9", "\"fast\"")), ::testing::HasSubstr("node.nvlink"));
  EXPECT_THAT(fault_of(replaced(good, "\"nodes_per_leaf\": 34",
                                "\"nodes_per_leaf\": 34, \"wiring\": \"rail\"")),
              ::testing::HasSubstr("'rails'"));
}

TEST(ClusterFiles, AreReadOrRefusedHoweverDamaged) {
  const std::string good = text_of("dgx_a100.json");
  std::uint32_t read = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const std::string text = DamagedText(seed)(good);
    try {
      const Cluster cluster = parse_cluster(text, "my.json");
      if (cluster.device_count() < 10'000) {
        EXPECT_GT(ClusterLinks(cluster).size(), 0U);
      }
      ++read;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith("my.json")) << seed;
    }
  }
  EXPECT_GT(read, 0U);
}

TEST(ClusterFiles, MayHaveStragglersAndFailures) {
  const std::string text =
      replaced(text_of("abci_v100.json"), "\"nodes\": 1088,",
               R"("nodes": 3, "stragglers": {"law": "exponential", "spread": 0.1, "unit": "node"},
         "failures": {"node_mean_seconds": 1e7, "checkpoint_interval_seconds": 600,
                      "checkpoint_seconds": 20, "restart_seconds": 300},)");
  const Cluster cluster = parse_cluster(text, "my.json");
  EXPECT_EQ(cluster.stragglers.law, StragglerLaw::kExponential);
  EXPECT_TRUE(cluster.stragglers.is_by_node);
  EXPECT_DOUBLE_EQ(cluster.failures.checkpoint_interval_seconds, 600.0);
}

}  // namespace
}  // namespace spillway::planner
