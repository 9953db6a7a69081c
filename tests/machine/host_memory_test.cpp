#include "spillway/planner/machine/host_memory.h"

#include <gmock/gmock.h>

namespace spillway::planner {
namespace {

using ::testing::ElementsAre;

TEST(HostPeaks, AddUpTheRanksOfAHost) {
  JobPlan plan;
  plan.ranks = 8;  // Two pipelines of four.
  for (const std::uint64_t bytes : {1U, 2U, 3U, 4U}) {
    RankMemory& rank = plan.memory.emplace_back();
    rank.host = Bytes(bytes);
  }
  EXPECT_THAT(host_peaks(plan, 1), ElementsAre(1_B, 2_B, 3_B, 4_B));
  EXPECT_THAT(host_peaks(plan, 2), ElementsAre(3_B, 7_B));
  EXPECT_THAT(host_peaks(plan, 3), ElementsAre(6_B, 7_B, 7_B));  // The last one has two ranks.
  EXPECT_THAT(host_peaks(plan, 8), ElementsAre(20_B));
  EXPECT_THAT(host_peaks(plan, 16), ElementsAre(20_B));
  EXPECT_EQ(fullest_host(plan, 2), 7_B);
}

}  // namespace
}  // namespace spillway::planner
