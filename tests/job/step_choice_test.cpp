// Our partitioner chooses its cuts by the step, and no other one has a faster step.
#include <gmock/gmock.h>

#include <algorithm>

#include "even_jobs.h"
#include "partition/random_problems.h"
#include "support/sanitized.h"

namespace spillway::job {
namespace {

/// A random chain for a schedule, on devices with room for a part of what it holds.
JobRequest random_job(std::uint64_t seed, std::string_view schedule) {
  const partition::ProblemShape shape{
      .layers = 9, .stages = 3, .has_links = false, .differ = false};
  const partition::PartitionProblem problem = partition::random_problem(seed, shape);
  JobRequest request;
  request.chain = problem.chain;
  request.schedule = schedule;
  request.ranks = 2 + seed % 3;
  request.micro_batches = 2 * request.ranks;
  request.link = {0.25 * static_cast<double>(seed % 4),
                  TransferRate(4.0 + static_cast<double>(seed % 32))};
  if (seed % 3 != 0) request.swap_rate = TransferRate(2.0 + static_cast<double>(seed % 8));
  request.chain.may_reorder = seed % 5 == 0;
  return request;
}

/// The step; infinite where nothing works.
double step_of(const JobRequest& request, std::string_view partitioner) {
  try {
    const JobChoice choice = job_choices(request).front();
    return make_job_plan(request, partition::partitioner_named(partitioner), choice).step_seconds;
  } catch (const PlanError&) {
    return partition::kNever;
  } catch (const ConfigError&) {
    return partition::kNever;
  }
}

TEST(StepChoice, IsNeverSlowerThanTheCutsOfAnyPartitioner) {
  std::uint32_t compared = 0;
  std::uint32_t faster = 0;
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "chimera", "gems-mast"})
    for (std::uint64_t seed = 0; seed < tries(12U, 2U); ++seed) {
      JobRequest request = random_job(seed, schedule);
      for (const std::uint64_t percent : {100U, 80U, 60U}) {
        const double ours = step_of(request, "spillway");
        for (const partition::Partitioner& other : partition::partitioners().subspan(1)) {
          const double theirs = step_of(request, other.name);
          if (theirs == partition::kNever) continue;
          ++compared;
          if (ours < theirs * (1.0 - 1e-9)) ++faster;
          EXPECT_LE(ours, theirs * (1.0 + 1e-9))
              << schedule << ", seed " << seed << ", " << percent << " %, " << other.name;
        }
        if (ours == partition::kNever) break;
        const Bytes peak = planned(request).peak();
        request.device_memory = Bytes(peak.count() * (percent - 20) / percent);
      }
    }
  EXPECT_GT(compared, tries(1000U, 150U));
  EXPECT_GT(faster, compared / 10);
}

// Cuts for all of the memory may not fit where stages share ranks, and plans were refused for more.
TEST(StepChoice, TakesCutsForLessMemoryWhereStagesShareRanks) {
  std::size_t compared = 0;
  for (const char* schedule : {"zb-v", "interleaved", "v-half"})
    for (std::uint32_t seed = 0; seed < tries(12U, 4U); ++seed) {
      SCOPED_TRACE(message("{} {}", schedule, seed));
      JobRequest request = random_job(seed, schedule);
      double tight = partition::kNever;
      try {
        request.device_memory = planned(request).peak() * 50 / 100;
        tight = planned(request).step_seconds;
      } catch (const ConfigError&) {
        continue;  // Not on so many ranks.
      } catch (const PlanError&) {
        continue;  // Not with half of it.
      }
      request.device_memory = request.device_memory * 100 / 70;
      EXPECT_LE(planned(request).step_seconds, tight * (1 + 1e-9));
      ++compared;
    }
  EXPECT_GT(compared, tries(5U, 1U));
}

}  // namespace
}  // namespace spillway::job
