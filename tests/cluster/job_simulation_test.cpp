#include "spillway/planner/cluster/job_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "small_clusters.h"
#include "spillway/base/error.h"
#include "spillway/schedule/schedule_csv.h"
#include "support/golden_part.h"

namespace spillway::cluster {
namespace {

TEST(SimulateJob, AgreesWithTheScheduleWhereNothingIsShared) {
  const Cluster cluster = delaying_cluster(4, 0.3);
  for (const planner_schedule::ScheduleGenerator& generator :
       planner_schedule::schedule_generators()) {
    SCOPED_TRACE(generator.name);
    const schedule::Schedule plain = planner_schedule::generated(generator.name, 4, 8);
    for (const schedule::Schedule& schedule : {plain, complete(plain)}) {
      const Job job = small_job(schedule, 100.0);
      const planner_schedule::ScheduleTiming expected =
          planner_schedule::time_schedule(schedule, costs_like(job, cluster));
      const JobTiming timing = simulate_job(job, cluster);
      EXPECT_NEAR(timing.step_seconds, expected.step_seconds, 1e-6);
      EXPECT_NEAR(timing.bubble, expected.bubble, 1e-6);
      for (std::size_t rank = 0; rank < 4; ++rank)
        EXPECT_NEAR(timing.ranks[rank].busy_seconds, expected.ranks[rank].busy_seconds, 1e-6);
    }
  }
}

// Of one replica: sums that begin together wait for each other in the schedule's simulator alone.
TEST(SimulateJob, AgreesWithTheScheduleWhereStagesThatLeadGetNoGradient) {
  const Cluster cluster = delaying_cluster(4, 0.3);
  for (const planner_schedule::ScheduleGenerator& generator :
       planner_schedule::schedule_generators()) {
    SCOPED_TRACE(generator.name);
    schedule::Schedule plain = planner_schedule::generated(generator.name, 4, 8);
    if (plain.replica_count() > 1) continue;
    plain.untrained_stages = plain.stages / 2;
    for (const schedule::Schedule& schedule : {plain, complete(plain)}) {
      const Job job = small_job(schedule, 100.0);
      const planner_schedule::ScheduleTiming expected =
          planner_schedule::time_schedule(schedule, costs_like(job, cluster));
      EXPECT_NEAR(simulate_job(job, cluster).step_seconds, expected.step_seconds, 1e-6);
    }
  }
}

TEST(SimulateJob, AgreesWithTheScheduleOnCopiesAndMemoryPasses) {
  const Cluster cluster = delaying_cluster(4, 0.1);
  for (const char* name : {"gpipe", "1f1b", "gems-master"}) {
    SCOPED_TRACE(name);
    Job job = small_job(complete(planner_schedule::generated(name, 4, 8)), 8.0);
    const planner_schedule::ScheduleCosts costs = costs_like(job, cluster);
    job.schedule = planner_schedule::with_swapped_stashes(job.schedule, costs);
    const JobTiming timing = simulate_job(job, cluster);
    const planner_schedule::ScheduleTiming expected =
        planner_schedule::time_schedule(job.schedule, costs);
    EXPECT_NEAR(timing.step_seconds, expected.step_seconds, 1e-6);
    EXPECT_EQ(timing.peak_memory[0], expected.ranks[0].peak_memory);
  }
  Job parked = small_job(complete(planner_schedule::generated("gems-mast", 4, 4)), 8.0);
  parked.schedule = *planner_schedule::with_parked_weights(parked.schedule);
  EXPECT_NEAR(
      simulate_job(parked, cluster).step_seconds,
      planner_schedule::time_schedule(parked.schedule, costs_like(parked, cluster)).step_seconds,
      1e-6);
}

TEST(SimulateJob, AgreesWithTheScheduleOnASingleOwner) {
  const Cluster cluster = delaying_cluster(4, 0.2);
  planner_schedule::CommunicationOptions options;
  options.copy_rule = planner_schedule::CopyRule::kSingleOwner;
  const Job job = small_job(*planner_schedule::with_communication(
                                planner_schedule::generated("gems-mast", 4, 4), options),
                            50.0);
  EXPECT_NEAR(simulate_job(job, cluster).step_seconds,
              planner_schedule::time_schedule(job.schedule, costs_like(job, cluster)).step_seconds,
              1e-6);
}

TEST(SimulateJob, HasTheBubbleOfTheFormula) {
  for (const std::uint32_t ranks : {2U, 4U, 8U})
    for (const std::uint32_t micro_batches : {8U, 16U}) {
      const Job job =
          small_job(complete(planner_schedule::generated("1f1b", ranks, micro_batches)));
      const JobTiming timing = simulate_job(job, small_cluster(1, ranks));
      EXPECT_NEAR(timing.bubble, (ranks - 1.0) / (micro_batches + ranks - 1.0), 1e-9);
      EXPECT_NEAR(timing.step_seconds, 3.0 * (micro_batches + ranks - 1.0), 1e-9);
    }
}

// Messages of 60 bytes, of two pipelines at once over each card.
TEST(SimulateJob, SharesACardBetweenPipelines) {
  Cluster cluster = small_cluster(2, 4);
  cluster.node.pcie = cluster.node.uplink = {0.0, TransferRate(1000.0)};
  Job job = small_job(complete(planner_schedule::generated("gpipe", 2, 1), 4), 60.0);
  for (planner_schedule::StageCosts& stage : job.stages) stage.gradients = Bytes(0);
  job.order = PlacementOrder::kDataParallelFirst;
  JobTiming timing = simulate_job(job, cluster);
  // A card carries 20: 6 s for two messages, there and back. Compute: 1, 1, 2, 2.
  EXPECT_NEAR(timing.step_seconds, 6.0 + 2 * 6.0, 1e-9);
  EXPECT_NEAR(timing.ranks[0].exposed_communication_seconds, 6.0, 1e-9);
  EXPECT_EQ(timing.simulated_pipelines, 1U);
  job.order = PlacementOrder::kPipelineFirst;  // Over NVLink, each alone.
  timing = simulate_job(job, cluster);
  EXPECT_NEAR(timing.step_seconds, 6.0 + 2 * 0.6, 1e-9);
  // One card for all: those behind the other switch reach it over the host, so they differ.
  cluster.node.nics = 1;
  job.order = PlacementOrder::kDataParallelFirst;
  timing = simulate_job(job, cluster);
  EXPECT_NEAR(timing.step_seconds, 6.0 + 2 * 12.0, 1e-9);
  EXPECT_EQ(timing.simulated_pipelines, 4U);
}

TEST(SimulateJob, ExposesTheReduction) {
  Cluster cluster = small_cluster(8, 1);
  cluster.node.nics = 1;
  cluster.node.pcie = {0.0, TransferRate(1000.0)};
  cluster.node.nic = {0.5, TransferRate(20.0)};
  cluster.network.nodes_per_leaf = 8;
  Job job = small_job(complete(planner_schedule::generated("gpipe", 1, 2), 8), 160.0);
  job.algorithm = CollectiveAlgorithm::kRing;
  const double ring = 2 * 7 * 0.5 + 2 * 7.0 / 8 * 160.0 / 20.0;
  const JobTiming timing = simulate_job(job, cluster);
  EXPECT_NEAR(timing.step_seconds, 2 * 3.0 + ring, 1e-9);
  EXPECT_NEAR(timing.ranks[0].exposed_communication_seconds, ring, 1e-9);
  EXPECT_NEAR(timing.bubble, ring / timing.step_seconds, 1e-9);
  for (const LinkClassLoad& load : timing.links)
    if (load.kind == LinkClass::kNic) {
      EXPECT_NEAR(load.carried, 8 * 2 * 2 * 7.0 / 8 * 160.0, 1e-6);
      EXPECT_NEAR(load.busiest, 2 * 7.0 / 8 * 160.0 / 20.0 / timing.step_seconds, 1e-9);
    }
}

// Two devices behind one uplink of 10: each swaps at 5.
TEST(SimulateJob, SharesTheUplinkOfASwitch) {
  const schedule::Schedule list =
      schedule::read_schedule_csv("0F0,0SWAP_OUT0,0SWAP_IN0,0B0\n", "test");
  Job job = small_job(list, 40.0);
  job.schedule.data_parallel = 4;
  const JobTiming timing = simulate_job(job, small_cluster(1, 4));
  EXPECT_NEAR(timing.step_seconds, 1 + 8 + 8 + 2, 1e-9);
  EXPECT_NEAR(timing.ranks[0].exposed_swap_seconds, 16.0, 1e-9);
  job.schedule.data_parallel = 1;
  EXPECT_NEAR(simulate_job(job, small_cluster(1, 4)).step_seconds, 1 + 4 + 4 + 2, 1e-9);
  job.swap_target = SwapTarget::kDisk;  // 2 out, 4 in.
  EXPECT_NEAR(simulate_job(job, small_cluster(1, 4)).step_seconds, 1 + 20 + 10 + 2, 1e-9);
}

/// Whatever the shape: where one pipeline stands for all, all of them do the same.
TEST(SimulateJob, LetsOneStandForAllOnlyWhereAllBehaveAlike) {
  std::mt19937_64 random(17);
  std::uint32_t alike = 0;
  for (int instance = 0; instance < 300; ++instance) {
    const std::uint32_t devices = 1U << random() % 4;
    Cluster cluster = small_cluster(1 + static_cast<std::uint32_t>(random() % 9), devices);
    cluster.node.nics = 1 + static_cast<std::uint32_t>(random() % 2);
    cluster.network.nodes_per_leaf = 1 + static_cast<std::uint32_t>(random() % 3);
    cluster.network.oversubscription = 1.0 + static_cast<double>(random() % 3);
    cluster.network.has_rails = random() % 2 == 0;
    if (random() % 2 == 0) cluster.node.nvlink.reset();
    const std::uint32_t ranks = 1 + static_cast<std::uint32_t>(random() % 4);
    const std::uint32_t pipelines = cluster.device_count() / ranks;
    if (pipelines < 2) continue;
    const char* const name = random() % 2 == 0 || ranks < 2 ? "1f1b" : "gems-mast";
    Job job = small_job(complete(planner_schedule::generated(name, ranks, 4), pipelines), 30.0);
    job.order = static_cast<PlacementOrder>(random() % 3);
    const JobTiming one = simulate_job(job, cluster);
    if (one.simulated_pipelines > 1) continue;
    ++alike;
    job.simulates_all_pipelines = true;
    const JobTiming all = simulate_job(job, cluster);
    ASSERT_EQ(all.simulated_pipelines, pipelines);
    ASSERT_NEAR(one.step_seconds, all.step_seconds, 1e-6 * all.step_seconds) << instance;
    ASSERT_NEAR(one.bubble, all.bubble, 1e-6) << instance;
    for (std::size_t i = 0; i < all.ranks.size(); ++i)
      ASSERT_NEAR(one.ranks[i % ranks].exposed_communication_seconds,
                  all.ranks[i].exposed_communication_seconds, 1e-5 * all.step_seconds);
    for (std::size_t i = 0; i < all.links.size(); ++i)
      ASSERT_NEAR(one.links[i].carried, all.links[i].carried, 1e-6 * all.links[i].carried + 1e-6);
  }
  EXPECT_GT(alike, 60U);
}

TEST(SimulateJob, WaitsForTheSlowest) {
  Cluster cluster = small_cluster(4, 1);
  cluster.stragglers = {.law = StragglerLaw::kUniform, .spread = 0.5};
  const std::vector<double> slowdowns = device_slowdowns(cluster);
  const Job job = small_job(complete(planner_schedule::generated("gpipe", 1, 2), 4));
  const JobTiming timing = simulate_job(job, cluster);
  EXPECT_EQ(timing.simulated_pipelines, 4U);
  EXPECT_NEAR(timing.step_seconds, 6.0 * *std::max_element(slowdowns.begin(), slowdowns.end()),
              1e-9);
  EXPECT_NEAR(timing.ranks[0].exposed_communication_seconds, 0.0, 1e-9);  // Only waits for others.
}

TEST(SimulateJob, TakesAsLongAgainWhenRepeated) {
  Job job = small_job(complete(planner_schedule::generated("1f1b", 4, 8)), 1.0);
  const JobTiming alone = simulate_job(job, small_cluster(1, 4));
  job.repetitions = 3;
  const JobTiming last = simulate_job(job, small_cluster(1, 4));
  EXPECT_NEAR(last.step_seconds, alone.step_seconds, 1e-9);
  EXPECT_NEAR(last.bubble, alone.bubble, 1e-9);
}

TEST(SimulateJob, RefusesWhatCannotRun) {
  Job job = small_job(complete(planner_schedule::generated("1f1b", 4, 8), 3), 1.0);
  EXPECT_THROW(simulate_job(job, small_cluster(1, 8)), ConfigError);
  job.repetitions = 0;
  EXPECT_THROW(simulate_job(job, small_cluster(4, 4)), ConfigError);
  job = small_job(schedule::read_schedule_csv("0F0,0B0\n1F0,1B0\n", "test"));
  EXPECT_THROW(simulate_job(job, small_cluster(1, 1)), ConfigError);
  job.stages.pop_back();
  EXPECT_THROW(simulate_job(job, small_cluster(1, 2)), ConfigError);
}

TEST(ToChromeTrace, ShowsTheRanksThatWereTraced) {
  Job job = small_job(complete(planner_schedule::generated("gpipe", 2, 1)), 10.0);
  job.traced_ranks = 1;
  GoldenPart().add(to_chrome_trace(simulate_job(job, small_cluster(1, 2))));
}

}  // namespace
}  // namespace spillway::cluster
