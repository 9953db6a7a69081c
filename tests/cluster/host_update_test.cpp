#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "small_clusters.h"
#include "spillway/base/error.h"
#include "spillway/schedule/schedule_csv.h"

namespace spillway::cluster {
namespace {

/// Groups of layers on one device: forwards in order, backwards back, each reduced as soon as its
/// backward is over.
Job grouped_job(const std::vector<double>& bytes, const std::vector<double>& seconds,
                std::uint32_t data_parallel) {
  const std::size_t groups = bytes.size();
  std::string csv;
  for (std::size_t i = 0; i < groups; ++i) csv += std::to_string(i) + "F0,";
  for (std::size_t i = groups; i-- > 0;)
    csv += std::to_string(i) + "B0," + std::to_string(i) + "REDUCE_GRAD,";
  for (std::size_t i = groups; i-- > 0;) csv += std::to_string(i) + "STEP,";
  csv.back() = '\n';
  Job job;
  job.schedule = schedule::read_schedule_csv(csv, "test");
  job.schedule.data_parallel = data_parallel;
  for (std::size_t i = 0; i < groups; ++i) {
    planner_schedule::StageCosts stage;
    stage.forward_seconds = stage.input_gradient_seconds = stage.weight_gradient_seconds =
        seconds[i];
    stage.weights = stage.gradients = Bytes(static_cast<std::uint64_t>(bytes[i]));
    job.stages.push_back(stage);
  }
  job.update = UpdatePlace::kHost;
  job.repetitions = 3;
  return job;
}

/// One device and one card in each node; nothing but cards and hosts shares anything.
Cluster hosts(std::uint32_t nodes) {
  Cluster cluster = small_cluster(nodes, 1);
  cluster.node.nics = 1;
  cluster.network.nodes_per_leaf = nodes;
  // Both ways of the uplink would carry copies and what goes between hosts.
  cluster.node.uplink = {0.0, TransferRate(1e12)};
  cluster.node.pcie = {0.125, TransferRate(10.0)};
  cluster.node.nic = {0.25, TransferRate(20.0)};
  return cluster;
}

/// The five stages by their recurrence: a group is done with a stage when it is done with the one
/// before and the group before is done with this one. Returns the end of each group's last stage.
std::vector<double> update_ends(const Job& job, const Cluster& cluster, double backward_start,
                                std::vector<std::vector<double>>& done) {
  const std::size_t groups = job.stages.size();
  const double n = cluster.nodes;
  std::vector<double> ends(groups);
  double computed = backward_start;
  for (std::size_t i = groups; i-- > 0;) {
    computed += 2 * job.stages[i].input_gradient_seconds;
    const auto q = static_cast<double>(job.stages[i].gradients.count());
    const double copy = q / 10.0;
    const double ring = (n - 1) / n * q / 20.0;
    const double rounds = (n - 1) * 0.25;
    // Latencies come behind what keeps the engine busy.
    const std::vector<std::pair<double, double>> stages{
        {copy, 0.125}, {ring, rounds}, {q / 4.0 / n / 50.0, 0.0}, {ring, rounds}, {copy, 0.125}};
    double ready = computed;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      double& free = done[s].front();
      free = std::max(ready, free) + stages[s].first;
      ready = free + stages[s].second;
    }
    ends[i] = ready;
  }
  return ends;
}

// Reduce-scatter and all-gather use the same cards; in these figures they never meet.
TEST(HostUpdate, FollowsTheFiveStages) {
  const Cluster cluster = hosts(4);
  for (const auto& bytes : {std::vector<double>{40, 40, 40}, {400, 20, 20}, {20, 20, 400}}) {
    Job job = grouped_job(bytes, {30.0, 30.0, 30.0}, 4);
    std::vector<std::vector<double>> done(5, std::vector<double>(1, 0.0));
    std::vector<double> ready(3, 0.0);  // The weights of each group.
    double begin = 0.0;
    std::vector<double> step_ends;
    for (int step = 0; step < 3; ++step) {
      double now = begin;
      for (std::size_t i = 0; i < 3; ++i) now = std::max(now, ready[i]) + 30.0;
      ready = update_ends(job, cluster, now, done);
      begin = now + 3 * 60.0;
      step_ends.push_back(begin);
    }
    EXPECT_NEAR(simulate_job(job, cluster).step_seconds, step_ends[2] - step_ends[1], 1e-6);
  }
}

TEST(HostUpdate, ExposesAtLeastTheGroupOfTheFirstLayer) {
  const Cluster cluster = hosts(4);
  const Job job = grouped_job({200, 40, 40}, {30.0, 30.0, 30.0}, 4);
  const JobTiming timing = simulate_job(job, cluster);
  const double tail = 2 * (200.0 / 10 + 0.125) + 2 * (0.75 * 200 / 20 + 3 * 0.25) + 50.0 / 4 / 50;
  EXPECT_NEAR(timing.step_seconds, 270.0 + tail, 1e-6);
  EXPECT_NEAR(timing.ranks[0].exposed_communication_seconds, tail, 1e-6);
}

TEST(HostUpdate, SplitsGradientsOverTheDevicesOfANode) {
  Cluster cluster = small_cluster(2, 4);
  cluster.network.nodes_per_leaf = 2;
  const Job job = grouped_job({800}, {1.0}, 8);
  // In the node 3/4 of 800 at 100, 200 of each device out at 5, as two share an uplink; between
  // nodes half of 200 at 5 (two shards pass each uplink of 10), the update of 100 parameters at 50,
  // and back.
  const double tail = 6 + 40 + 20 + 2 + 20 + 40 + 6;
  EXPECT_EQ(simulate_job(job, cluster).peak_memory[0], 800_B);  // Weights; gradients leave.
  EXPECT_NEAR(simulate_job(job, cluster).step_seconds, 3.0 + tail, 1e-6);
}

TEST(HostUpdate, NeedsNoReductionOfASinglePipeline) {
  Job job = grouped_job({100}, {1.0}, 1);
  job.schedule = schedule::read_schedule_csv("0F0,0B0,0STEP\n", "test");
  const JobTiming timing = simulate_job(job, small_cluster(1, 1));
  EXPECT_NEAR(timing.step_seconds, 3.0 + 10.0 + 25.0 / 50.0 + 10.0, 1e-9);
}

// What the action list fetches itself does not come by itself, too.
TEST(HostUpdate, LeavesStreamedWeightsOnTheHost) {
  Job job = grouped_job({100}, {1.0}, 1);
  job.schedule =
      schedule::read_schedule_csv("0SWAP_IN_WEIGHTS,0F0,0B0,0SWAP_OUT_WEIGHTS,0STEP\n", "test");
  const JobTiming timing = simulate_job(job, small_cluster(1, 1));
  EXPECT_NEAR(timing.step_seconds, 3.0 + 10.0 + 25.0 / 50.0 + 10.0, 1e-9);
  EXPECT_NEAR(timing.ranks[0].exposed_swap_seconds, 10.0, 1e-9);
  EXPECT_NEAR(timing.ranks[0].exposed_communication_seconds, 10.5, 1e-9);
}

// Two copies of a stage, of which one has its gradients 8 s after the other: what the list fetches
// for its step waits for the update of both.
TEST(HostUpdate, KeepsWeightsOnTheHostUntilAllGradientsAreThere) {
  Job job = small_job(
      schedule::read_schedule_csv("0F0,0B0,0SWAP_OUT_WEIGHTS,0REDUCE_GRAD,0SWAP_IN_WEIGHTS,0STEP\n"
                                  "r1:0F0,r1:0SWAP_OUT0,r1:0SWAP_IN0,r1:0B0,"
                                  "0SWAP_OUT_WEIGHTS,0REDUCE_GRAD,0SWAP_IN_WEIGHTS,0STEP\n",
                                  "test"),
      40.0);
  job.update = UpdatePlace::kHost;
  job.repetitions = 3;
  // In the node half of 40 at 100, 20 of each device out at 5, 10 parameters at 50, 40 back at 5.
  const double tail = 0.2 + 4.0 + 0.2 + 8.0;
  EXPECT_NEAR(simulate_job(job, small_cluster(1, 2)).step_seconds, 3.0 + 8.0 + tail, 1e-6);
}

TEST(HostUpdate, RunsBesideGemsPipelines) {
  Job job = small_job(complete(planner_schedule::generated("gems-mast", 4, 4), 4), 40.0);
  job.order = PlacementOrder::kFolded;
  const double on_device = simulate_job(job, small_cluster(4, 4)).step_seconds;
  job.update = UpdatePlace::kHost;
  job.repetitions = 3;
  const JobTiming timing = simulate_job(job, small_cluster(4, 4));
  EXPECT_GT(timing.step_seconds, 4 * 3.0 * 2);
  EXPECT_LT(timing.step_seconds, on_device + 4 * 40.0);
  job.repetitions = 1;
  EXPECT_THROW(simulate_job(job, small_cluster(4, 4)), ConfigError);
  job.repetitions = 2;
  Cluster without = small_cluster(4, 4);
  without.node.host_update_parameters_per_second = 0.0;
  EXPECT_THROW(simulate_job(job, without), ConfigError);
}

}  // namespace
}  // namespace spillway::cluster
