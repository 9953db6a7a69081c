#include "planning/cluster_file.h"

#include <gmock/gmock.h>

#include "planning_command.h"

namespace spillway::cli {
namespace {

using ::testing::HasSubstr;

TEST(ClusterFolder, LiesBesideTheFolderOfTheCommand) {
  EXPECT_EQ(cluster_folder("/opt/spillway/bin/spillway"), "/opt/spillway/share/spillway/clusters");
}

TEST(ClusterPath, IsAFileOrTheNameOfAnInstalledOne) {
  const std::string folder = SPILLWAY_TEST_CLUSTERS;
  EXPECT_EQ(cluster_path("--cluster", "dgx_h200", folder), folder + "/dgx_h200.json");
  EXPECT_EQ(cluster_path("--cluster", "my/dgx_h200", folder), "my/dgx_h200");
  EXPECT_EQ(cluster_path("--cluster", "mine.json", folder), "mine.json");
  const auto refused = [](const std::string& word, const std::string& where) {
    try {
      return cluster_path("--cluster", word, where);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(refused("dgx_h300", folder),
              HasSubstr("--cluster dgx_h300 is no file, and " + folder +
                        " has no description of that name (there are: abci_v100 dgx_a100 "
                        "dgx_h200)"));
  EXPECT_THAT(refused("dgx_h200", "/nowhere"), HasSubstr("it has none: name a file"));
}

// The folder of the tests' programs is that of the command.
TEST(ClusterPath, FindsThoseOfTheBuild) {
  EXPECT_EQ(read_cluster(clusters().read("--cluster", "abci_v100")).name, "abci-v100");
}

}  // namespace
}  // namespace spillway::cli
