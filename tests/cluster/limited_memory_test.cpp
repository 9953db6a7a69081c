// Who waits for room while stashes leave: as the schedule's own simulator has it.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "small_clusters.h"
#include "spillway/base/error.h"
#include "spillway/schedule/schedule_csv.h"

namespace spillway::cluster {
namespace {

bool is_use_of(const schedule::Action& action, const schedule::Action& forward) {
  return schedule::makes_input_gradient(action.kind) && action.stage == forward.stage &&
         action.micro_batch == forward.micro_batch && action.replica == forward.replica;
}

/// Half of all stashes leave behind their forward, and come back anywhere before their backward.
schedule::Schedule with_random_swaps(schedule::Schedule schedule, std::mt19937_64& random) {
  for (auto& list : schedule.ranks) {
    std::vector<std::vector<schedule::Action>> before(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].kind != schedule::ActionKind::kForward || random() % 2 == 0) continue;
      std::size_t use = i + 1;
      while (!is_use_of(list[use], list[i])) ++use;
      schedule::Action copy = list[i];
      copy.kind = schedule::ActionKind::kSwapOut;
      before[i + 1].insert(before[i + 1].begin(), copy);
      copy.kind = schedule::ActionKind::kSwapIn;
      before[i + 1 + random() % (use - i)].push_back(copy);
    }
    std::vector<schedule::Action> longer;
    for (std::size_t i = 0; i < list.size(); ++i) {
      longer.insert(longer.end(), before[i].begin(), before[i].end());
      longer.push_back(list[i]);
    }
    list = std::move(longer);
  }
  return schedule;
}

Job random_job(const char* name, std::mt19937_64& random) {
  Job job = small_job(complete(planner_schedule::generated(name, 4, 8)));
  std::uniform_real_distribution<double> seconds(0.5, 2.0);
  for (planner_schedule::StageCosts& stage : job.stages) {
    stage.forward_seconds = seconds(random);
    stage.input_gradient_seconds = seconds(random);
    stage.weight_gradient_seconds = seconds(random);
    stage.stash = Bytes(3 + random() % 20);
    stage.weights = stage.gradients = Bytes(random() % 40);
    stage.optimizer_state = Bytes(random() % 40);
    stage.update_peak = Bytes(random() % 60);
  }
  job.schedule = with_random_swaps(job.schedule, random);
  return job;
}

TEST(SimulateJob, WaitsForRoomAsTheScheduleDoes) {
  std::mt19937_64 random(23);
  const Cluster cluster = delaying_cluster(4, 0.1);
  std::uint32_t longer = 0;
  for (int instance = 0; instance < 60; ++instance)
    for (const char* name : {"gpipe", "1f1b", "zb-h1", "gems-mast", "gems-master", "chimera"}) {
      Job job = random_job(name, random);
      const planner_schedule::ScheduleTiming unlimited =
          planner_schedule::time_schedule(job.schedule, costs_like(job, cluster));
      Bytes most;
      for (const planner_schedule::RankTiming& rank : unlimited.ranks)
        most = std::max(most, rank.peak_memory);
      job.memory = Bytes(most.count() * (50 + random() % 50) / 100);
      const planner_schedule::ScheduleTiming expected =
          planner_schedule::time_schedule(job.schedule, costs_like(job, cluster));
      const JobTiming timing = simulate_job(job, cluster);
      ASSERT_NEAR(timing.step_seconds, expected.step_seconds, 1e-6) << name << ' ' << instance;
      ASSERT_NEAR(timing.bubble, expected.bubble, 1e-6) << name << ' ' << instance;
      for (std::size_t rank = 0; rank < 4; ++rank)
        ASSERT_EQ(timing.peak_memory[rank], expected.ranks[rank].peak_memory)
            << name << ' ' << instance << ' ' << rank;
      if (expected.step_seconds > unlimited.step_seconds + 1e-3) ++longer;
    }
  EXPECT_GT(longer, 100U);
}

TEST(SimulateJob, WaitsForRoomOnMemoryPasses) {
  const Cluster cluster = delaying_cluster(4, 0.1);
  for (const char* name : {"gpipe", "1f1b", "gems-master"}) {
    SCOPED_TRACE(name);
    Job job = small_job(complete(planner_schedule::generated(name, 4, 8)), 8.0);
    job.memory = 44_B;
    job.schedule = planner_schedule::with_memory_fitted(job.schedule, costs_like(job, cluster));
    const planner_schedule::ScheduleTiming expected =
        planner_schedule::time_schedule(job.schedule, costs_like(job, cluster));
    const JobTiming timing = simulate_job(job, cluster);
    EXPECT_NEAR(timing.step_seconds, expected.step_seconds, 1e-6);
    for (std::size_t rank = 0; rank < 4; ++rank)
      EXPECT_EQ(timing.peak_memory[rank], expected.ranks[rank].peak_memory);
  }
}

// Weights and gradients of 40, a stash of 40 that takes 4 s each way: room for one.
TEST(SimulateJob, CountsWaitsForRoomAsSwaps) {
  Job job = small_job(schedule::read_schedule_csv(
                          "0F0,0SWAP_OUT0,0F1,0SWAP_OUT1,0SWAP_IN1,0B1,0SWAP_IN0,0B0\n", "test"),
                      40.0);
  const Cluster cluster = small_cluster(1, 1);
  EXPECT_NEAR(simulate_job(job, cluster).step_seconds, 21.0, 1e-9);
  job.memory = 120_B;
  // F0 until 1; F1 waits until 5, and its copy back, from 6 on, until 10; B1 from 14, B0 from 20.
  const JobTiming timing = simulate_job(job, cluster);
  EXPECT_NEAR(timing.step_seconds, 22.0, 1e-9);
  EXPECT_NEAR(timing.ranks[0].exposed_swap_seconds, 4.0 + 8.0 + 4.0, 1e-9);
  EXPECT_EQ(timing.peak_memory[0], 120_B);
}

// On a machine the uplink is shared, so room comes later than the plan says.
TEST(SimulateJob, WaitsLongerForRoomWhereLinksAreShared) {
  Job job = small_job(schedule::read_schedule_csv("0F0,0SWAP_OUT0,0F1,0B1,0SWAP_IN0,0B0\n", "test"),
                      40.0);
  job.schedule.data_parallel = 4;
  job.memory = 120_B;
  // Copies take 8 s instead of 4: F0 until 1, out until 9, F1, B1 until 12, in until 20.
  EXPECT_NEAR(simulate_job(job, small_cluster(1, 4)).step_seconds, 22.0, 1e-9);
}

TEST(SimulateJob, RepeatsNoListThatKeepsMore) {
  Job job = small_job(schedule::read_schedule_csv("0SWAP_IN_WEIGHTS,0F0,0B0\n", "test"), 40.0);
  job.memory = 120_B;
  job.repetitions = 2;
  EXPECT_THROW(simulate_job(job, small_cluster(1, 1)), ConfigError);
  job.memory.reset();
  EXPECT_THROW(simulate_job(job, small_cluster(1, 1)), ConfigError);
  job.repetitions = 1;
  EXPECT_NEAR(simulate_job(job, small_cluster(1, 1)).step_seconds, 4.0 + 3.0, 1e-9);
}

}  // namespace
}  // namespace spillway::cluster
