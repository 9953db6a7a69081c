#include "spillway/planner/job/job_search.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <span>

#include "random_jobs.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/job/job_bound.h"
#include "support/golden_part.h"
#include "support/sanitized.h"

namespace spillway::job {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

JobRequest uneven_job() {
  JobRequest request = even_job(12, 4, 8);
  for (partition::LayerIndex i = 0; i < 12; ++i) {
    request.chain.layers[i].forward_seconds = 0.5 + 0.1 * ((i * 7) % 5);
    request.chain.layers[i].stash = Bytes((5 + (i * 5) % 7) * kMega);
  }
  request.link = {1e-3, TransferRate(1e7)};
  return request;
}

TEST(JobSearch, IsNeverSlowerThanAScheduleThatCanBeNamed) {
  std::size_t compared = 0;
  std::size_t reduced = 0;
  for (std::uint32_t seed = 80; seed < tries(100U, 84U); ++seed) {
    Draw draw(seed);
    JobRequest request = random_job(seed);
    request.micro_batches = request.batch;
    request.swap_rate = TransferRate(1e6 * draw.among(0, 20));
    request.device_memory = Bytes(draw.among(30, 120) * kMega);
    const OrRefusal<JobSearch> found = search_job(request);
    // Where it finds nothing, nothing that is named works.
    const double open = found ? found->plan.step_seconds : kNoTime;
    for (const planner_schedule::ScheduleGenerator& generator :
         planner_schedule::schedule_generators()) {
      JobRequest named = request;
      named.schedule = generator.name;
      const OrRefusal<JobSearch> other = search_job(named);
      if (!other) continue;  // Not for these counts, or too large.
      if (changes_results(other->plan.actions)) continue;
      EXPECT_GE(other->plan.step_seconds, open * (1 - 1e-9)) << seed << " " << generator.name;
      ++compared;
      reduced += other->plan.reduces_memory() ? 1 : 0;
    }
  }
  EXPECT_GT(compared, tries(40U, 4U));
  EXPECT_GT(reduced, tries(20U, 2U));
}

// Choices that cannot win are given up early, and idle-time offload is not tried for them.
TEST(JobSearch, LosesNothingByGivingUpEarly) {
  std::size_t pruned = 0;
  std::size_t reduced = 0;
  for (std::uint32_t seed = 0; seed < tries(30U, 4U); ++seed) {
    std::mt19937 random(seed);
    JobRequest request = uneven_job();
    request.cut_effort = kFirstLook;  // At all choices, as the search looks at them.
    for (partition::ModelLayer& layer : request.chain.layers) {
      layer.forward_seconds = 0.1 * (1.0 + random() % 20);
      layer.stash = Bytes((1 + random() % 20) * kMega);
    }
    request.swap_rate = TransferRate(1e6 * (2.0 + random() % 20));
    request.device_memory = Bytes((70 + random() % 80) * kMega);
    const OrRefusal<JobSearch> found = search_job(request);
    if (!found) continue;
    const JobSearch& search = *found;
    pruned += search.pruned;
    reduced += search.plan.reduces_memory() ? 1 : 0;
    double best = kNoTime;
    PlanMemo memo;
    const partition::Partitioner& partitioner = partition::partitioner_named("spillway");
    for (const JobChoice& choice : job_choices(request)) {
      const JobAttempt alone = tried(request, partitioner, choice);
      EXPECT_FALSE(alone.is_given_up());
      if (alone.is_possible()) best = std::min(best, alone.step_seconds);
      // What others have found is what it finds itself.
      const auto with_memo = plan_choice(request, partitioner, choice, memo);
      EXPECT_EQ(attempt_of(request, partitioner, choice, with_memo).step_seconds,
                alone.step_seconds);
    }
    EXPECT_LE(search.plan.step_seconds, best * (1 + 1e-9)) << seed;
  }
  EXPECT_GT(pruned, tries(100U, 10U));
  EXPECT_GT(reduced, tries(10U, 0U));
}

TEST(JobSearch, GivesUpWhatCannotBeFaster) {
  GoldenPart golden;
  JobRequest request = uneven_job();
  request.device_memory = Bytes(100 * kMega);
  request.swap_rate = TransferRate(5e6);
  JobChoice choice{&planner_schedule::schedule_generator_named("1f1b"), 1};
  const partition::Partitioner& partitioner = partition::partitioner_named("spillway");
  const JobAttempt open = tried(request, partitioner, choice);
  ASSERT_TRUE(open.is_possible() && open.reduces_memory);
  choice.incumbent.deferred = open.step_seconds * 2;
  EXPECT_EQ(tried(request, partitioner, choice).step_seconds, open.step_seconds);
  JobRequest ample = request;
  ample.device_memory = partition::kNoLimit;
  const double without_memory_reduction = tried(ample, partitioner, choice).step_seconds;
  choice.incumbent.deferred = choice.incumbent.offload = without_memory_reduction / 2;
  const JobAttempt deferred = tried(request, partitioner, choice);
  EXPECT_TRUE(deferred.is_deferred && !deferred.is_pruned);
  golden.add(deferred.refusal);
  choice.incumbent = {};
  choice.incumbent.all = choice.incumbent.offload = job_bound(request) / 2;
  const JobAttempt given_up = tried(request, partitioner, choice);
  EXPECT_TRUE(given_up.is_pruned && !given_up.is_deferred);
  golden.add(given_up.refusal);
}

TEST(JobSearch, IsTheSameEachTime) {
  const JobSearch first = *search_job(uneven_job());
  const JobSearch second = *search_job(uneven_job());
  EXPECT_EQ(first.plan.schedule, second.plan.schedule);
  EXPECT_EQ(first.plan.data_parallel, second.plan.data_parallel);
  EXPECT_EQ(first.plan.step_seconds, second.plan.step_seconds);
  EXPECT_EQ(first.plan.actions.ranks, second.plan.actions.ranks);
}

TEST(WithMicroBatches, ScalesTimesAndSizesOfOne) {
  JobRequest request = even_job(2, 2, 8);
  request.batch = 8;
  const JobRequest merged = with_micro_batches(request, 2);
  EXPECT_EQ(merged.micro_batches, 2U);
  const partition::ModelLayer& layer = merged.chain.layers[0];
  EXPECT_DOUBLE_EQ(layer.forward_seconds, 4.0);
  EXPECT_DOUBLE_EQ(layer.backward_seconds, 8.0);
  EXPECT_EQ(layer.stash, Bytes(40 * kMega));
  EXPECT_DOUBLE_EQ(layer.recompute[0].seconds, 2.0);
  EXPECT_EQ(layer.parameters, Bytes(4 * kMega));
  EXPECT_EQ(merged.chain.borders[0].bytes, Bytes(4 * kMega));
  EXPECT_GE(job_bound(merged), job_bound(request));
}

TEST(JobSearch, ChoosesMicroBatchesWhereTheyAreOpen) {
  JobRequest request = even_job(8, 4, 0);
  request.batch = 8;
  request.data_parallel = 1;
  const JobSearch open = *search_job(request);
  EXPECT_EQ(open.plan.batch, 8U);
  std::set<std::uint32_t> tried;
  for (const JobAttempt& each : open.attempts) tried.insert(each.micro_batches);
  EXPECT_THAT(tried, ::testing::IsSupersetOf({8U, 4U}));
  for (const std::uint32_t count : {8U, 4U, 2U}) {
    request.micro_batches = count;
    EXPECT_LE(open.plan.step_seconds, search_job(request)->plan.step_seconds * (1 + 1e-9)) << count;
  }
  request = even_job(8, 4, 4, "1f1b");
  request.batch = 8;
  EXPECT_NEAR(planned(request).step_seconds, (4 + 3) * 12.0, 1e-9);  // Two profiled ones in each.
}

// Half of the slots that 1F1B has was all that it ever looked at.
TEST(JobSearch, TakesAsManySlotsAsHaveRoom) {
  JobRequest request = even_job(8, 8, 16);
  for (partition::ModelLayer& layer : request.chain.layers) layer.recompute.clear();
  request.data_parallel = 1;
  request.device_memory = Bytes(70 * kMega);  // 12 MB and five stashes of 11, not six.
  const JobSearch search = *search_job(request);
  std::set<std::string> possible;
  for (const JobAttempt& each : search.attempts)
    if (each.schedule == "1f1b-capped" && each.is_possible()) possible.insert(each.variant);
  EXPECT_THAT(possible, ::testing::Contains("slots=5"));
  EXPECT_THAT(possible, ::testing::Not(::testing::Contains("slots=6")));
  for (std::uint32_t slots = 1; slots < 6; ++slots) {
    JobRequest named = request;
    named.schedule = "1f1b-capped";
    named.variant.slots = slots;
    EXPECT_LE(search.plan.step_seconds, planned(named).step_seconds * (1 + 1e-9)) << slots;
  }
}

TEST(JobSearch, LeavesSchedulesThatChangeResultsToThoseWhoNameThem) {
  GoldenPart golden;
  JobRequest request = even_job(8, 4, 8);
  const JobSearch search = *search_job(request);
  const auto tried =
      std::find_if(search.attempts.begin(), search.attempts.end(), [](const JobAttempt& each) {
        return each.schedule == "pipedream" && each.data_parallel == 1;
      });
  ASSERT_NE(tried, search.attempts.end());
  golden.add(tried->refusal);
  // Before it is planned: whether its versions of the weights fit does not matter.
  JobRequest tight = request;
  tight.device_memory = Bytes(56 * kMega);
  const JobSearch open = *search_job(tight);
  for (const JobAttempt& each : open.attempts) {
    if (each.schedule == "pipedream") {
      golden.add(each.refusal);
    }
  }
  request.schedule = "pipedream";
  EXPECT_EQ(planned(request).schedule, "pipedream");
}

TEST(JobSearch, TakesReplicasWhereTheWholeModelFits) {
  JobRequest request = even_job(8, 4, 8);
  const JobSearch search = *search_job(request);
  EXPECT_EQ(search.plan.data_parallel, 4U);  // No bubble, and sums take no time.
  EXPECT_NEAR(search.plan.gap(), 0.0, 1e-9);
  request.device_memory = Bytes(90 * kMega);  // All layers have 96 MB beside their stash.
  EXPECT_LT(search_job(request)->plan.data_parallel, 4U);
}

// Equal action lists, or as fast and small ones with more to do.
TEST(JobSearch, PrefersThePlainestOfEquals) {
  EXPECT_EQ(search_job(even_job(8, 1, 4))->plan.schedule, "1f1b");
  JobRequest request = even_job(8, 4, 4);
  request.data_parallel = 4;  // A rank each, with a micro-batch.
  EXPECT_EQ(search_job(request)->plan.schedule, "1f1b");
}

JobRequest job_without_memory_reduction() {
  JobRequest request = even_job(8, 4, 8);
  for (partition::ModelLayer& layer : request.chain.layers) layer.recompute.clear();
  return request;
}

TEST(JobSearch, NamesTheNearestMissAndDevicesThatWouldDo) {
  GoldenPart golden;
  JobRequest request = job_without_memory_reduction();
  for (const std::uint64_t megabytes : {10U, 28U, 40U}) {  // The first holds no layer.
    request.device_memory = Bytes(megabytes * kMega);
    JobAttempt nearest;
    const JobTrials trials = trials_of(request, [&](const JobChoice& choice) {
      return tried(request, partition::partitioner_named("spillway"), choice);
    });
    for (const JobAttempt& attempt : trials.attempts) {
      ASSERT_FALSE(attempt.is_possible()) << attempt.schedule;
      const bool is_nearer = nearest.missing == Bytes() || attempt.missing < nearest.missing;
      if (attempt.missing > Bytes() && is_nearer) nearest = attempt;
    }
    ASSERT_GT(nearest.missing, Bytes());
    const Bytes needed = request.device_memory + nearest.missing;
    EXPECT_THAT(
        search_job(request).refusal().sentence,
        StartsWith(message("nothing works on 4 ranks with 8 micro-batches; nearest is {} "
                           "on pipelines of {} ranks, whose rank {} needs {} and has {}, {} "
                           "too little (use devices of ",
                           nearest.schedule, 4 / nearest.data_parallel, nearest.fullest_rank,
                           needed, request.device_memory, nearest.missing)));
    request.device_memory = needed;  // Enough here, where no stage may choose.
    EXPECT_LE(search_job(request)->plan.peak(), needed);
    request.device_memory = needed - Bytes(1);
    golden.add(search_job(request).refusal().sentence);
  }
}

/// "84MiB" of a sentence with "devices of 84MiB", or nothing.
std::string devices_told(const std::string& sentence) {
  const std::string begin = "devices of ";
  const std::size_t at = sentence.find(begin);
  if (at == std::string::npos) return {};
  const std::size_t size = at + begin.size();
  return sentence.substr(size, sentence.find_first_of(",) ", size) - size);
}

// They were multiples of what had been typed, and up to a quarter more than needed.
TEST(JobSearch, NamesTheSameDevicesWhateverWasTyped) {
  for (const char* schedule : {"1f1b", "gpipe", "interleaved", "zb-v", "gems-mast"}) {
    JobRequest request = job_without_memory_reduction();
    request.schedule = schedule;
    request.cut_effort = CutEffort::kExact;
    std::set<std::string> told;
    // The first does not even hold what no stage owns.
    for (const std::uint64_t kilobytes : {1U, 9'000U, 17'000U, 23'456U}) {
      for (partition::ModelLayer& layer : request.chain.layers) layer.working_peak = Bytes(kMega);
      request.device_memory = Bytes(kilobytes * 1000);
      const OrRefusal<JobSearch> found = search_job(request);
      ASSERT_FALSE(found) << schedule;
      told.insert(devices_told(found.refusal().sentence));
    }
    ASSERT_EQ(told.size(), 1U) << schedule;
    request.device_memory = parse_bytes(*told.begin());
    EXPECT_TRUE(search_job(request)) << schedule << " on " << *told.begin();
    request.device_memory -= 1_MiB;
    EXPECT_FALSE(search_job(request)) << schedule << " below " << *told.begin();
  }
}

TEST(JobSearch, NamesDevicesThatHoldWhatNoStageOwns) {
  JobRequest request = even_job(8, 4, 8);
  request.reserved = Bytes(30 * kMega);
  request.device_memory = Bytes(20 * kMega);
  const std::string told = devices_told(search_job(request).refusal().sentence);
  ASSERT_FALSE(told.empty());
  request.device_memory = parse_bytes(told);
  EXPECT_TRUE(search_job(request));
}

/// Of three candidates, of which the best one takes 2 s, and another look at it.
struct SecondLook {
  explicit SecondLook(std::size_t candidates) {
    search.attempts.resize(candidates);
    search.plan.step_seconds = 2.0;
    search.plan.order.bound_seconds = 1.0;
    again.order.bound_seconds = 1.5;
    again.schedule = "1f1b";
  }
  bool take(std::optional<double> seconds) {
    again.step_seconds = seconds.value_or(1.0);
    return take_again(again, seconds, 2.0, search);
  }

  JobSearch search;
  JobPlan again;
};

TEST(TakeAgain, TakesAPlanThatIsNoSlower) {
  SecondLook faster(3);
  EXPECT_TRUE(faster.take(1.0));
  EXPECT_EQ(faster.search.plan.step_seconds, 1.0);
  ASSERT_EQ(faster.search.attempts.size(), 4U);
  EXPECT_EQ(faster.search.attempts.back().step_seconds, 1.0);
  SecondLook as_fast(3);
  EXPECT_TRUE(as_fast.take(2.0));
  EXPECT_EQ(as_fast.search.plan.order.bound_seconds, 1.5);
  EXPECT_EQ(as_fast.search.attempts.size(), 3U);
}

TEST(TakeAgain, LearnsTheBoundOfTheOrderFromAPlanThatIsNoHelp) {
  for (const std::optional<double> seconds : {std::optional(3.0), std::optional<double>()}) {
    SecondLook slower(3);
    EXPECT_FALSE(slower.take(seconds));
    EXPECT_EQ(slower.search.plan.step_seconds, 2.0);
    EXPECT_EQ(slower.search.plan.order.bound_seconds, 1.5);
    EXPECT_EQ(slower.search.attempts.size(), 3U);
  }
}

TEST(TakeAgain, KeepsTheOnlyCandidateTheOnlyOne) {
  SecondLook only(1);
  EXPECT_TRUE(only.take(1.0));
  ASSERT_EQ(only.search.attempts.size(), 1U);
  EXPECT_EQ(only.search.attempts[0].step_seconds, 1.0);
}

TEST(JobSearch, NamesRanksForWhichThereAreLayers) {
  GoldenPart golden;
  for (const char* schedule : {"1f1b", "interleaved:chunks=3", "interleaved:chunks=9", "chimera"}) {
    const NamedSchedule named = schedule_in(schedule);
    JobRequest request = even_job(7, 10, 20, named.generator->name);
    request.variant = named.variant;
    golden.add(message("{} > {}", schedule, search_job(request).refusal().sentence));
  }
}

// All cuts of all partitioners took minutes, and nobody was told.
TEST(JobSearch, LooksAtFirstCutsAloneWhereNothingCanFit) {
  JobRequest request = even_job(12, 4, 8);
  request.device_memory = memory_bound(request) - Bytes(1);
  std::set<CutEffort> efforts;
  std::vector<Bytes> memories;
  const OrRefusal<JobSearch> found =
      search_job(request, [&](const JobChoice& choice, Bytes device_memory) {
        efforts.insert(choice.cut_effort);
        memories.push_back(device_memory);
      });
  ASSERT_FALSE(found);
  EXPECT_EQ(efforts.count(CutEffort::kAll), 0U);
  EXPECT_EQ(memories.front(), request.device_memory);
  // The devices that would do are looked for, and shown, too.
  const bool is_shown = std::any_of(memories.begin(), memories.end(), [&](Bytes memory) {
    return memory != partition::kNoLimit &&
           devices_told(found.refusal().sentence) == as_option(memory);
  });
  EXPECT_TRUE(is_shown) << found.refusal().sentence;
  request.schedule = "1f1b";
  std::size_t shown = 0;
  EXPECT_FALSE(search_job(request, [&](const JobChoice&, Bytes) { ++shown; }));
  EXPECT_GE(shown, 2U);
}

// Sizes were rounded to the nearest one, and half of them were too small.
TEST(JobSearch, NamesDevicesThatDoAsPrinted) {
  constexpr std::array<std::uint64_t, 4> kPercents{12, 23, 17, 33};
  for (const char* schedule : {"auto", "1f1b", "gpipe", "chimera", "gems-mast", "zb-v"}) {
    std::size_t refused = 0;
    for (const std::uint64_t percent : std::span(kPercents).first(tries(4U, 2U))) {
      SCOPED_TRACE(message("{} at {} %", schedule, percent));
      JobRequest request = even_job(12, 4, 8, schedule);
      for (std::size_t i = 0; i < 12; ++i) request.chain.layers[i].parameters += Bytes(i * 777'777);
      for (partition::ModelLayer& layer : request.chain.layers) layer.recompute.clear();
      request.device_memory = planned(request).peak() * percent / 100;
      const OrRefusal<JobSearch> found = search_job(request);
      if (found) continue;
      ++refused;
      request.device_memory = parse_bytes(devices_told(found.refusal().sentence));
      EXPECT_LE(planned(request).peak(), request.device_memory);
    }
    EXPECT_GE(refused, 1U) << schedule;
  }
}

TEST(JobSearch, TellsTheCommonestReasonWhereNoMemoryHelps) {
  GoldenPart golden;
  JobRequest request = even_job(3, 4, 8);
  request.data_parallel = 1;
  golden.add(search_job(request).refusal().sentence);
}

}  // namespace
}  // namespace spillway::job
