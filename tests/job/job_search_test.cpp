#include "spillway/planner/job/job_search.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "even_jobs.h"
#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

using ::testing::HasSubstr;

JobRequest uneven_job() {
  JobRequest request = even_job(12, 4, 8);
  for (LayerIndex i = 0; i < 12; ++i) {
    request.chain.layers[i].forward_seconds = 0.5 + 0.1 * ((i * 7) % 5);
    request.chain.layers[i].stash = Bytes((5 + (i * 5) % 7) * kMega);
  }
  request.link = {1e-3, 1e7};
  return request;
}

TEST(JobSearch, IsNeverSlowerThanAScheduleThatCanBeNamed) {
  JobRequest request = uneven_job();
  request.device_memory = Bytes(140 * kMega);
  const JobSearch search = search_job(request);
  EXPECT_LE(search.plan.peak(), request.device_memory);
  std::size_t compared = 0;
  for (const ScheduleGenerator& generator : schedule_generators())
    for (const std::uint32_t groups : {1U, 2U, 4U}) {
      JobRequest named = request;
      named.schedule = generator.name;
      named.groups = groups;
      try {
        const JobPlan plan = planned(named);
        if (changes_results(plan.actions)) continue;
        EXPECT_GE(plan.step_seconds, search.plan.step_seconds * (1 - 1e-9)) << generator.name;
        ++compared;
      } catch (const Error&) {
        continue;  // Not for these counts, or too large.
      }
    }
  EXPECT_GT(compared, 10U);
}

TEST(JobSearch, IsTheSameEachTime) {
  const JobSearch first = search_job(uneven_job());
  const JobSearch second = search_job(uneven_job());
  EXPECT_EQ(first.plan.schedule, second.plan.schedule);
  EXPECT_EQ(first.plan.groups, second.plan.groups);
  EXPECT_EQ(first.plan.step_seconds, second.plan.step_seconds);
  EXPECT_EQ(first.plan.actions.ranks, second.plan.actions.ranks);
}

TEST(JobSearch, FindsNothingBelowTheBound) {
  JobRequest request = uneven_job();
  const double bound = job_bound(request);
  std::size_t compared = 0;
  for (const Partitioner& partitioner : partitioners()) {
    request.partitioner = partitioner.name;
    for (const JobAttempt& attempt : search_job(request).attempts) {
      if (!attempt.is_possible()) continue;
      EXPECT_GE(attempt.step_seconds, bound * (1 - 1e-9)) << attempt.schedule;
      ++compared;
    }
  }
  EXPECT_GT(compared, 100U);
}

TEST(JobSearch, LeavesSchedulesThatChangeResultsToThoseWhoNameThem) {
  JobRequest request = even_job(8, 4, 8);
  const JobSearch search = search_job(request);
  const auto tried = std::find_if(
      search.attempts.begin(), search.attempts.end(),
      [](const JobAttempt& each) { return each.schedule == "pipedream" && each.groups == 1; });
  ASSERT_NE(tried, search.attempts.end());
  EXPECT_THAT(tried->refusal, HasSubstr("changes results"));
  request.schedule = "pipedream";
  EXPECT_EQ(planned(request).schedule, "pipedream");
}

TEST(JobSearch, TakesGroupsWhereTheWholeModelFits) {
  JobRequest request = even_job(8, 4, 8);
  const JobSearch search = search_job(request);
  EXPECT_EQ(search.plan.groups, 4U);  // No bubble, and sums take no time.
  EXPECT_NEAR(search.plan.gap(), 0.0, 1e-9);
  request.device_memory = Bytes(90 * kMega);  // All layers have 96 MB beside their stash.
  EXPECT_LT(search_job(request).plan.groups, 4U);
}

TEST(JobSearch, SaysWhyNothingWorks) {
  JobRequest request = even_job(8, 4, 8);
  for (ModelLayer& layer : request.chain.layers) layer.recompute.clear();
  request.device_memory = Bytes(28 * kMega);
  EXPECT_THAT(refusal([&] { search_job(request); }),
              HasSubstr("nothing works on 4 ranks with 8 micro-batches"));
}

}  // namespace
}  // namespace spillway::planner
