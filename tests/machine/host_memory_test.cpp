#include "spillway/planner/machine/machine_share.h"

#include <gmock/gmock.h>

#include "million_byte_cluster.h"
#include "spillway/planner/machine/machine_search.h"

namespace spillway::machine {
namespace {

using ::testing::ElementsAre;

job::JobRequest request_without_memory_reduction(job::JobRequest request) {
  request.variant.memory_reduction.reset();
  return request;
}

TEST(HostPeaks, AddUpTheRanksOfAHost) {
  job::JobPlan plan;
  plan.ranks = 8;  // Two pipelines of four.
  for (const std::uint64_t bytes : {1U, 2U, 3U, 4U}) {
    job::RankMemory& rank = plan.memory.emplace_back();
    rank.host = Bytes(bytes);
  }
  EXPECT_THAT(host_peaks(plan, 1), ElementsAre(1_B, 2_B, 3_B, 4_B));
  EXPECT_THAT(host_peaks(plan, 2), ElementsAre(3_B, 7_B));
  EXPECT_THAT(host_peaks(plan, 3), ElementsAre(6_B, 7_B, 7_B));  // The last one has two ranks.
  EXPECT_THAT(host_peaks(plan, 8), ElementsAre(20_B));
  EXPECT_THAT(host_peaks(plan, 16), ElementsAre(20_B));
  EXPECT_EQ(fullest_host(plan, 2), 7_B);
}

// They disagreed where a copy of weights leaves for good, and where several kinds of swaps meet.
TEST(HostPeaks, AreThoseOfTheSimulation) {
  cluster::Cluster cluster = million_byte_cluster(4, 2);
  std::size_t swapping = 0;
  for (const char* schedule :
       {"gems-mast", "gems-mast:single-owner", "gems-mast:parked", "gems-master:parked", "chimera",
        "1f1b:stages", "1f1b:idle-offload", "gpipe:idle-offload", "gems-basic:stages"}) {
    SCOPED_TRACE(schedule);
    const job::NamedSchedule named = job::schedule_in(schedule);
    job::JobRequest request = job::even_job(8, 8, 16, named.generator->name);
    request.variant = named.variant;
    request.data_parallel = 2;
    request.swap_rate = TransferRate(1e8);
    if (named.variant.memory_reduction)
      request.device_memory =
          job::planned(request_without_memory_reduction(request)).peak() * 3 / 4;
    const job::JobPlan plan = job::planned(request);
    const cluster::JobTiming timing =
        cluster::simulate_job(job_of(plan, cluster::SwapTarget::kHost), cluster);
    EXPECT_EQ(fullest_host(plan, cluster.node.devices), timing.host_memory);
    if (timing.host_memory > Bytes(0)) ++swapping;
  }
  EXPECT_GE(swapping, 6U);
}

}  // namespace
}  // namespace spillway::machine
