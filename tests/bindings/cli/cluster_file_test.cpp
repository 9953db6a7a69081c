#include "planning/cluster_file.h"

#include "planning_command.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::cli {
namespace {

TEST(ClusterFolder, LiesBesideTheFolderOfTheCommand) {
  EXPECT_EQ(cluster_folder("/opt/spillway/bin/spillway"), "/opt/spillway/share/spillway/clusters");
}

TEST(ClusterPath, IsAFileOrTheNameOfAnInstalledOne) {
  const std::string folder = SPILLWAY_TEST_CLUSTERS;
  EXPECT_EQ(cluster_path("--cluster", "dgx_h200", folder), folder + "/dgx_h200.json");
  EXPECT_EQ(cluster_path("--cluster", "my/dgx_h200", folder), "my/dgx_h200");
  EXPECT_EQ(cluster_path("--cluster", "mine.json", folder), "mine.json");
  GoldenPart golden;
  golden.mask(folder, "CLUSTERS");
  for (const auto& [word, where] : {std::pair{"dgx_h300", folder}, {"dgx_h200", "/nowhere"}})
    golden.add(error_text<ConfigError>([&] { cluster_path("--cluster", word, where); }));
}

// The folder of the tests' programs is that of the command.
TEST(ClusterPath, FindsThoseOfTheBuild) {
  EXPECT_EQ(read_cluster(clusters().read("--cluster", "abci_v100")).name, "abci-v100");
}

}  // namespace
}  // namespace spillway::cli
