// How much of a machine a job is on, and how large it may be.
#include <gtest/gtest.h>

#include <string>

#include "small_clusters.h"
#include "spillway/base/error.h"
#include "support/error_text.h"
#include "support/golden_part.h"

namespace spillway::cluster {
namespace {

TEST(JobExtent, CountsTheNodesThatHaveRanks) {
  const Job job = small_job(complete(planner_schedule::generated("1f1b", 2, 4), 3), 1.0);
  EXPECT_EQ(simulate_job(job, small_cluster(8, 4)).nodes, 2U);  // Six devices.
  EXPECT_EQ(simulate_job(job, small_cluster(8, 2)).nodes, 3U);
}

// Four devices of a large machine showed loads of nearly nothing.
TEST(JobExtent, HasLoadsOfItsOwnNodes) {
  const Job job = small_job(complete(planner_schedule::generated("1f1b", 4, 4)), 20.0);
  const JobTiming alone = simulate_job(job, small_cluster(1, 4));
  const JobTiming among_many = simulate_job(job, small_cluster(50, 4));
  std::uint32_t compared = 0;
  for (const LinkClassLoad& load : alone.links)
    for (const LinkClassLoad& other : among_many.links)
      if (other.kind == load.kind) {
        EXPECT_EQ(other.links, load.links) << to_string(load.kind);
        EXPECT_DOUBLE_EQ(other.mean, load.mean) << to_string(load.kind);
        ++compared;
      }
  EXPECT_EQ(compared, alone.links.size());
}

TEST(JobExtent, HasTheLeafSwitchesOfItsNodes) {
  Cluster cluster = small_cluster(12, 2);  // Four nodes below a leaf.
  const Job job = small_job(complete(planner_schedule::generated("gpipe", 1, 2), 10), 20.0);
  const auto spine_links = [&] {
    for (const LinkClassLoad& load : simulate_job(job, cluster).links)
      if (load.kind == LinkClass::kSpine) return load.links;
    return 0U;
  };
  EXPECT_EQ(spine_links(), 2 * 2U);  // Five nodes: two leaves, up and down.
  cluster.network.has_rails = true;  // A leaf for each of two cards.
  EXPECT_EQ(spine_links(), 2 * 2 * 2U);
}

// What such a job would take, was found out by running out of memory.
TEST(JobExtent, RefusesMoreActionsThanAMachineHolds) {
  Job job = small_job(planner_schedule::generated("gpipe", 1, 26'000));
  job.repetitions = 1000;
  GoldenPart().add(error_text<ConfigError>([&] { simulate_job(job, small_cluster(1, 1)); }));
}

TEST(ToChromeTrace, WritesTimesOfAnySize) {
  JobTiming timing;
  timing.spans.push_back({0, JobSpan::Lane::kCompute, {}, 0, 0.0, 1e290});
  timing.spans.push_back({0, JobSpan::Lane::kCompute, {}, 0, 1.0, 2.0});
  GoldenPart().add(to_chrome_trace(timing));
}

}  // namespace
}  // namespace spillway::cluster
