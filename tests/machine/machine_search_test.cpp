#include "spillway/planner/machine/machine_search.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "million_byte_cluster.h"
#include "spillway/base/error.h"
#include "spillway/planner/machine/machine_share.h"
#include "support/golden_part.h"
#include "support/sanitized.h"

namespace spillway::machine {
namespace {

TEST(SearchJobOn, TakesTheFastestOfTheFastestTwelveAndMore) {
  const cluster::Cluster cluster = million_byte_cluster(2, 4);
  const job::JobRequest request = job::even_job(16, 8, 16);
  const MachineSearch found = *search_job_on(request, cluster);
  // And variants.
  EXPECT_GE(found.search.attempts.size() + found.search.pruned, job::job_choices(request).size());
  ASSERT_GE(found.runs.size(), 12U);
  EXPECT_TRUE(
      std::is_sorted(found.runs.begin(), found.runs.end(),
                     [](const auto& a, const auto& b) { return a.step_seconds < b.step_seconds; }));
  EXPECT_EQ(found.runs[0].schedule, found.search.plan.schedule);
  EXPECT_EQ(found.runs[0].data_parallel, found.search.plan.data_parallel);
  EXPECT_DOUBLE_EQ(found.runs[0].step_seconds, found.timing.step_seconds);
  EXPECT_DOUBLE_EQ(
      found.timing.step_seconds,
      cluster::simulate_job(job_of(found.search.plan, found.swap_target), cluster).step_seconds);
  // No plan that is not simulated has a shorter step by its own links.
  for (const job::JobAttempt& attempt : found.search.attempts) {
    if (!attempt.is_possible()) continue;
    const auto simulated =
        std::count_if(found.runs.begin(), found.runs.end(), [&](const MachineRun& run) {
          return run.planned_step_seconds <= attempt.step_seconds * (1 + 1e-9);
        });
    const bool is_one = std::any_of(found.runs.begin(), found.runs.end(), [&](const auto& run) {
      return run.schedule == attempt.schedule && run.data_parallel == attempt.data_parallel;
    });
    EXPECT_TRUE(is_one || simulated >= 12) << attempt.schedule << ' ' << attempt.data_parallel;
  }
}

/// The step on the machine; infinite where there is none.
double step_on(const job::JobRequest& request, const cluster::Cluster& cluster,
               const job::JobChoice& choice) {
  const MachineAttempt made =
      try_choice_on(request, cluster, partition::partitioner_named(request.partitioner), choice);
  if (!made.attempt.is_possible()) return job::kNoTime;
  return cluster::simulate_job(job_of(made.plan, made.swap_target), cluster).step_seconds;
}

// Of several numbers of data-parallel replicas and schedules, each of which could be named: where
// devices have room, and where they swap over links that they share.
TEST(SearchJobOn, IsNoSlowerThanAScheduleThatCanBeNamed) {
  std::size_t named = 0;
  const std::array kinds{std::pair{70U, 4U}, std::pair{1'000U, 1U}, std::pair{50U, 4U}};
  for (const auto& [megabytes, uplink] : std::span(kinds).first(tries(3U, 1U))) {
    cluster::Cluster cluster = million_byte_cluster(2, 2);
    cluster.node.uplink.rate = cluster.node.uplink.rate / static_cast<double>(uplink);
    job::JobRequest request = job::even_job(8, 4, 8);
    request.device_memory = Bytes(megabytes * job::kMega);
    const MachineSearch found = *search_job_on(request, cluster);
    for (const job::JobChoice& choice : job::job_choices(request)) {
      const double seconds = step_on(request, cluster, choice);
      if (seconds < job::kNoTime) ++named;
      EXPECT_GE(seconds, found.timing.step_seconds * (1.0 - 1e-9))
          << megabytes << " MB, uplink / " << uplink << ": " << choice.generator->name << " on "
          << choice.data_parallel << " data-parallel replicas, not " << found.search.plan.schedule
          << " on " << found.search.plan.data_parallel;
    }
  }
  EXPECT_GT(named, tries(75U, 20U));
}

// Within nodes messages are fast, between them they are not: pipelines do not leave their node.
TEST(SearchJobOn, KeepsPipelinesInTheirNodes) {
  cluster::Cluster cluster = million_byte_cluster(4, 2);
  cluster.node.nic.rate = TransferRate(0.2e6);  // A border takes 5 s, as long as a stage.
  const MachineSearch slow = *search_job_on(job::even_job(8, 8, 16, "1f1b"), cluster);
  EXPECT_EQ(slow.search.plan.data_parallel, 1U) << "what was named stays";
  job::JobRequest request = job::even_job(8, 8, 16);
  for (partition::ModelLayer& layer : request.chain.layers) layer.parameters = Bytes(4);
  EXPECT_GE(search_job_on(request, cluster)->search.plan.data_parallel, 4U);
}

// Stages come to their sums one after the other, so that these meet on the cards in part only.
TEST(SearchJobOn, PlansSumsAsTheyHappen) {
  cluster::Cluster cluster = million_byte_cluster(4, 4);
  cluster.node.nic = cluster.node.pcie;
  for (const std::uint32_t data_parallel : {2U, 4U, 8U})
    for (const std::uint64_t megabytes : {4U, 16U, 64U}) {
      job::JobRequest request = job::even_job(16, 16, 32, "1f1b");
      request.data_parallel = data_parallel;
      for (partition::ModelLayer& layer : request.chain.layers)
        layer.parameters = Bytes(megabytes * job::kMega);
      const MachineRun run = search_job_on(request, cluster)->runs.at(0);
      EXPECT_NEAR(run.planned_step_seconds, run.step_seconds, 0.03 * run.step_seconds)
          << data_parallel << " data-parallel replicas, " << megabytes << " MB";
    }
}

TEST(SearchJobOn, IsAsFastAsItsDevices) {
  cluster::Cluster cluster = million_byte_cluster(1, 1);
  const job::JobRequest request = job::even_job(4, 1, 2, "gpipe");
  EXPECT_NEAR(search_job_on(request, cluster)->timing.step_seconds, 24.0, 1e-9);
  cluster.device.speed_over_profile = 3.0;
  const MachineSearch found = *search_job_on(request, cluster);
  EXPECT_NEAR(found.timing.step_seconds, 8.0, 1e-9);
  EXPECT_NEAR(found.search.plan.bound_seconds, 8.0, 1e-9);
}

/// A pipeline in one node whose first stages have room for some of their stashes only.
job::JobRequest swapping_job() {
  job::JobRequest request = job::even_job(8, 4, 8, "1f1b");
  for (partition::ModelLayer& layer : request.chain.layers) layer.recompute.clear();
  request.device_memory = Bytes(80 * job::kMega);
  return request;
}

TEST(SearchJobOn, GoesOnToDisksWhereAHostIsTooFull) {
  GoldenPart golden;
  cluster::Cluster cluster = million_byte_cluster(1, 4);
  const MachineSearch ample = *search_job_on(swapping_job(), cluster);
  EXPECT_EQ(ample.swap_target, cluster::SwapTarget::kHost);
  const Bytes held = fullest_host(ample.search.plan, 4);
  EXPECT_GT(held, 0_B);
  cluster.node.host_memory = held;
  EXPECT_EQ(search_job_on(swapping_job(), cluster)->swap_target, cluster::SwapTarget::kHost);
  cluster.node.host_memory = held - 1_B;
  const MachineSearch tight = *search_job_on(swapping_job(), cluster);
  EXPECT_EQ(tight.swap_target, cluster::SwapTarget::kDisk);
  EXPECT_GT(tight.search.plan.step_seconds, ample.search.plan.step_seconds);
  EXPECT_DOUBLE_EQ(tight.request.swap_rate.bytes_per_second(), 2e6 / 4);
  cluster.node.disks = 0;
  golden.add(search_job_on(swapping_job(), cluster).refusal().sentence);
}

TEST(SearchJobOn, RefusesWhatNoMachineOrPlanCanBe) {
  GoldenPart golden;
  const cluster::Cluster cluster = million_byte_cluster(1, 4);
  golden.add(job::refusal([&] { search_job_on(job::even_job(8, 8, 8), cluster); }));
  golden.add(search_job_on(job::even_job(3, 4, 8, "1f1b"), cluster).refusal().sentence);
  cluster::Cluster small = cluster;
  small.device.memory = Bytes(2 * job::kMega);
  const job::JobRequest request = job::even_job(8, 4, 8);
  golden.add(search_job_on(request, small).refusal().sentence);
  // Where nothing can fit, that is found by one search, not two.
  std::size_t shown = 0;
  std::size_t alone = 0;
  search_job_on(request, small, [&](const job::JobChoice&, Bytes) { ++shown; });
  job::search_job(request_on(request, small, 1, cluster::SwapTarget::kHost),
                  [&](const job::JobChoice&, Bytes) { ++alone; });
  EXPECT_EQ(shown, alone);
  cluster::Cluster cut = million_byte_cluster(2, 4);
  cut.node.nics = 0;
  golden.add(job::refusal([&] { search_job_on(job::even_job(8, 8, 8), cut); }));
}

}  // namespace
}  // namespace spillway::machine
