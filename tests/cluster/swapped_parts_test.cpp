// Parts of stashes that stages swap of every micro-batch: copies like others, on links that others
// use, too.
#include <gmock/gmock.h>

#include <string>

#include "small_clusters.h"
#include "spillway/base/error.h"
#include "spillway/schedule/schedule_csv.h"

namespace spillway::cluster {
namespace {

/// Forward 1 s, backward 2 s on one device; of each stash so many bytes at 10 a second.
Job swapping_job(const std::string& list, double bytes) {
  Job job = small_job(schedule::read_schedule_csv(list + "\n", "test"));
  job.stages[0].swapped = Bytes(static_cast<std::uint64_t>(bytes));
  return job;
}

const LinkClassLoad& load_of(const JobTiming& timing, LinkClass kind) {
  for (const LinkClassLoad& load : timing.links)
    if (load.kind == kind) return load;
  throw PlanError("no links of class {}", to_string(kind));
}

constexpr const char* kForwardsFirst = "0F0,0F1,0F2,0B0,0B1,0B2";

// Each next forward waits for the room of the one before: 1.5 s. Backwards take longer than that.
TEST(SwappedParts, LeaveBesideForwardsAndComeBackBesideBackwards) {
  const JobTiming timing = simulate_job(swapping_job(kForwardsFirst, 15.0), small_cluster(1, 1));
  EXPECT_NEAR(timing.step_seconds, 2 * 1.5 + 1.0 + 3 * 2.0, 1e-9);
  EXPECT_NEAR(timing.ranks[0].busy_seconds, 9.0, 1e-9);
  EXPECT_NEAR(timing.ranks[0].exposed_swap_seconds, 1.0, 1e-9);
  EXPECT_NEAR(load_of(timing, LinkClass::kPcie).carried, 3 * (15.0 + 15.0), 1e-9);
}

// 2.5 s each way: backwards end with their copies.
TEST(SwappedParts, HoldUpWhatIsShorterThanTheirCopies) {
  const JobTiming timing = simulate_job(swapping_job(kForwardsFirst, 25.0), small_cluster(1, 1));
  EXPECT_NEAR(timing.step_seconds, 2 * 2.5 + 1.0 + 3 * 2.5, 1e-9);
  EXPECT_NEAR(timing.ranks[0].exposed_swap_seconds, 2 * 1.5 + 3 * 0.5, 1e-9);
}

// In steady state of 1F1B, both directions have the 3 s of a forward and a backward.
TEST(SwappedParts, UseBothDirectionsWhereForwardsAndBackwardsTakeTurns) {
  const JobTiming timing =
      simulate_job(swapping_job("0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3", 25.0), small_cluster(1, 1));
  EXPECT_NEAR(timing.step_seconds, 4 * 3.0 + 1.5 + 0.5 + 0.5, 1e-9);
}

TEST(SwappedParts, ShareTheUplinkOfASwitch) {
  Job job = swapping_job(kForwardsFirst, 15.0);
  const double alone = simulate_job(job, small_cluster(1, 2)).step_seconds;
  job.schedule.data_parallel = 2;
  const JobTiming timing = simulate_job(job, small_cluster(1, 2));
  EXPECT_NEAR(alone, 10.0, 1e-9);
  EXPECT_NEAR(timing.step_seconds, 2 * 3.0 + 1.0 + 3 * 3.0, 1e-9);  // 3 s each way.
  EXPECT_NEAR(load_of(timing, LinkClass::kUplink).mean, 6 * 15.0 / (16.0 * 10.0), 1e-9);
}

TEST(SwappedParts, AreTheSameInAllPipelinesOrInTheOneThatStandsForThem) {
  Job job = small_job(complete(planner_schedule::generated("1f1b", 2, 6), 4), 30.0);
  job.stages[0].swapped = Bytes(12);
  job.stages[1].swapped = Bytes(7);
  job.algorithm = CollectiveAlgorithm::kRing;  // A tree treats its members differently.
  job.repetitions = 2;
  const JobTiming one = simulate_job(job, small_cluster(2, 4));
  job.simulates_all_pipelines = true;
  const JobTiming all = simulate_job(job, small_cluster(2, 4));
  EXPECT_EQ(one.simulated_pipelines, 1U);
  EXPECT_EQ(all.simulated_pipelines, 4U);
  EXPECT_NEAR(one.step_seconds, all.step_seconds, 1e-9);
  EXPECT_GT(one.ranks[0].exposed_swap_seconds, 0.0);
  EXPECT_NEAR(one.ranks[0].exposed_swap_seconds, all.ranks[6].exposed_swap_seconds, 1e-9);
}

TEST(SwappedParts, MayGoToDisks) {
  Job job = swapping_job("0F0,0B0", 4.0);
  job.swap_target = SwapTarget::kDisk;  // 2 out, 4 in: 2 s and 1 s.
  EXPECT_NEAR(simulate_job(job, small_cluster(1, 1)).step_seconds, 3.0, 1e-9);
  job.stages[0].swapped = Bytes(8);  // 4 s until it is out, then 2 s back.
  EXPECT_NEAR(simulate_job(job, small_cluster(1, 1)).step_seconds, 6.0, 1e-9);
  EXPECT_EQ(simulate_job(job, small_cluster(1, 1)).host_memory, Bytes(0));
}

TEST(SwappedParts, StandInTheTraceAsSwaps) {
  Job job = swapping_job("0F0,0B0", 5.0);
  job.traced_ranks = 1;
  std::string lanes;
  for (const JobSpan& span : simulate_job(job, small_cluster(1, 1)).spans)
    lanes += schedule::to_string(span.action) + " ";
  EXPECT_EQ(lanes, "0SWAP_OUT0 0F0 0SWAP_IN0 0B0 ");
}

// From none that is waited for to far too many, alone on the host links.
TEST(SwappedParts, TakeAsLongAsToTheScheduleWhereNothingIsShared) {
  const Cluster cluster = delaying_cluster(4, 0.0);
  for (const planner_schedule::ScheduleGenerator& generator :
       planner_schedule::schedule_generators())
    for (const std::uint64_t bytes : {5U, 15U, 30U, 60U}) {
      SCOPED_TRACE(std::string(generator.name) + ", " + std::to_string(bytes));
      Job job = small_job(complete(planner_schedule::generated(generator.name, 4, 8)));
      for (std::size_t stage = 0; stage < job.stages.size(); ++stage)
        job.stages[stage].swapped = Bytes(stage % 3 == 2 ? 0 : bytes + stage);
      const planner_schedule::ScheduleTiming expected =
          planner_schedule::time_schedule(job.schedule, costs_like(job, cluster));
      const JobTiming timing = simulate_job(job, cluster);
      EXPECT_NEAR(timing.step_seconds, expected.step_seconds, 1e-6);
      for (std::size_t rank = 0; rank < 4; ++rank)
        EXPECT_NEAR(timing.ranks[rank].busy_seconds, expected.ranks[rank].busy_seconds, 1e-6);
    }
}

TEST(HostMemory, HoldsWhatTheDevicesOfANodeSwapAtTheirWorst) {
  Job job = swapping_job(kForwardsFirst, 15.0);
  job.schedule.data_parallel = 3;
  EXPECT_EQ(simulate_job(job, small_cluster(2, 2)).host_memory, Bytes(2 * 3 * 15));
  job = small_job(schedule::read_schedule_csv("0F0,0SWAP_OUT0,0F1,0SWAP_IN0,0B0,0B1\n", "test"),
                  40.0);
  EXPECT_EQ(simulate_job(job, small_cluster(1, 1)).host_memory, Bytes(40));
}

// Two hosts keep half of the states each; weights and gradients pass both.
TEST(HostMemory, HoldsWhatHostsUpdate) {
  Job job = small_job(complete(planner_schedule::generated("gpipe", 1, 2), 2), 100.0);
  job.stages[0].optimizer_state = Bytes(600);
  job.update = UpdatePlace::kHost;
  job.repetitions = 2;
  EXPECT_EQ(simulate_job(job, small_cluster(2, 1)).host_memory, Bytes(100 + 100 + 300));
}

}  // namespace
}  // namespace spillway::cluster
