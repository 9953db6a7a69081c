#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "even_jobs.h"
#include "spillway/planner/job/job_bound.h"

namespace spillway::job {
namespace {

JobAttempt attempt_in(const JobChoice& choice, double seconds) {
  JobAttempt attempt{"spillway", std::string(choice.generator->name), choice.data_parallel,
                     to_string(choice.variant), choice.micro_batches};
  attempt.step_seconds = seconds;
  return attempt;
}

std::vector<std::string> variants_of(const JobTrials& trials, std::string_view schedule) {
  std::vector<std::string> variants;
  for (const JobAttempt& each : trials.attempts)
    if (each.schedule == schedule) variants.push_back(each.variant);
  return variants;
}

/// On 16 ranks; nothing comes near the bound.
JobRequest wide_job() {
  JobRequest request = even_job(64, 16, 16);
  request.data_parallel = 1;
  return request;
}

TEST(CandidateList, FindsTheMostSlotsForWhichThereIsRoom) {
  for (std::uint32_t room = 1; room < 16; ++room) {
    const JobTrials trials = trials_of(wide_job(), [&](const JobChoice& choice) {
      JobAttempt attempt = attempt_in(choice, 1e6);
      if (choice.variant.slots > room) attempt.refusal = "it is too large";
      return attempt;
    });
    const auto tried = variants_of(trials, "1f1b-capped");
    EXPECT_THAT(tried, ::testing::Contains("slots=" + std::to_string(room)));
    EXPECT_LE(tried.size(), 1U + 5U) << room;  // The usual one, the most, and four halvings.
  }
}

// What was too slow with few slots was taken for too large.
TEST(CandidateList, GoesOnAboveWhatIsTooSlow) {
  const JobRequest request = wide_job();
  double all = 0.0;  // Of one micro-batch: 31 / 16 of it to fill and drain, 16 / s with s slots.
  for (const partition::ModelLayer& layer : request.chain.layers)
    all += layer.forward_seconds + layer.backward_seconds;
  const JobTrials trials = trials_of(request, [&](const JobChoice& choice) {
    JobAttempt attempt = attempt_in(choice, 1.97 * all);
    if (choice.variant.slots > 14) attempt.refusal = "it is too large";
    return attempt;
  });
  const auto tried = variants_of(trials, "1f1b-capped");
  EXPECT_THAT(tried, ::testing::IsSupersetOf({"slots=15", "slots=14"}));
  EXPECT_THAT(tried, ::testing::Not(::testing::Contains("slots=8")));
}

TEST(CandidateList, GoesOnBelowWhatNeedsMemoryReduction) {
  const JobTrials trials = trials_of(wide_job(), [](const JobChoice& choice) {
    JobAttempt attempt = attempt_in(choice, 1e6);
    attempt.reduces_memory = choice.variant.slots > 3;
    return attempt;
  });
  const auto tried = variants_of(trials, "1f1b-capped");
  EXPECT_THAT(tried, ::testing::IsSupersetOf({"slots=15", "slots=3"}));
}

TEST(CandidateList, TakesMoreStagesPerRankAsLongAsItHelps) {
  JobRequest request = even_job(128, 16, 16);
  request.data_parallel = 1;
  const auto tried_with = [&](std::uint32_t best_chunks) {
    const JobTrials trials = trials_of(request, [&](const JobChoice& choice) {
      const std::uint32_t chunks = std::max(2U, choice.variant.chunks);
      return attempt_in(choice, chunks <= best_chunks ? 1e6 / chunks : 1e6);
    });
    return variants_of(trials, "interleaved");
  };
  EXPECT_THAT(tried_with(2), ::testing::ElementsAre("", "chunks=4"));
  EXPECT_THAT(tried_with(4), ::testing::ElementsAre("", "chunks=4", "chunks=8"));
  // 128 layers on 16 ranks do not give more than eight.
  EXPECT_THAT(tried_with(16), ::testing::ElementsAre("", "chunks=4", "chunks=8"));
}

TEST(CandidateList, TriesSecondCopiesWhereTheyApply) {
  JobRequest request = wide_job();
  const auto tried = [&] {
    return trials_of(request, [](const JobChoice& choice) { return attempt_in(choice, 1e6); });
  };
  EXPECT_THAT(variants_of(tried(), "gems-mast"), ::testing::ElementsAre("", "single-owner"));
  EXPECT_THAT(variants_of(tried(), "gems-master"),
              ::testing::IsSupersetOf({"replicas=4", "replicas=4,single-owner"}));
  EXPECT_THAT(variants_of(tried(), "zb-v"), ::testing::ElementsAre(""));
  request.device_memory = Bytes(kMega);
  request.swap_rate = TransferRate(1e9);
  EXPECT_THAT(variants_of(tried(), "gems-mast"),
              ::testing::ElementsAre("", "single-owner", "parked"));
  EXPECT_THAT(variants_of(tried(), "zb-v"), ::testing::ElementsAre(""));  // It has room.
  const JobTrials full = trials_of(request, [](const JobChoice& choice) {
    JobAttempt attempt = attempt_in(choice, 1e6);
    attempt.reduces_memory = true;
    return attempt;
  });
  EXPECT_THAT(variants_of(full, "zb-v"), ::testing::ElementsAre("", "parked"));
}

TEST(CandidateList, TriesFewerMicroBatchesOnlyWhereTheyAreOpen) {
  const auto counts_of = [](const JobRequest& request) {
    std::map<std::uint32_t, int> counts;
    for (const JobAttempt& each : trials_of(request, [](const JobChoice& choice) {
                                    return attempt_in(choice, 1e6);
                                  }).attempts)
      ++counts[each.micro_batches];
    return counts;
  };
  JobRequest request = even_job(64, 16, 0);
  request.data_parallel = 1;
  request.batch = 48;
  EXPECT_THAT(counts_of(request), ::testing::SizeIs(4));  // 48 (as 0), 24, 16 and 12.
  EXPECT_EQ(counts_of(request).count(16), 1U);
  request.micro_batches = 48;
  EXPECT_THAT(counts_of(request), ::testing::SizeIs(1));
}

TEST(CandidateList, LeavesOutWhatCannotBeFaster) {
  const JobRequest request = wide_job();
  const double bound = job_bound(request);
  std::size_t tried = 0;
  const JobTrials trials = trials_of(request, [&](const JobChoice& choice) {
    ++tried;
    return attempt_in(choice, bound);
  });
  EXPECT_EQ(tried, job_choices(request).size());
  EXPECT_EQ(trials.attempts.size(), tried);
  EXPECT_GT(trials.pruned, 0U);
  EXPECT_EQ(trials.skipped, 0U);
}

TEST(CandidateList, EndsHoweverMuchIsOpen) {
  JobRequest request = even_job(256, 128, 0);
  request.batch = 2520;
  request.device_memory = Bytes(kMega);
  request.swap_rate = TransferRate(1e9);
  const JobTrials trials = trials_of(request, [](const JobChoice& choice) {
    JobAttempt attempt = attempt_in(choice, 1e9);
    attempt.reduces_memory = true;
    return attempt;
  });
  EXPECT_LE(trials.attempts.size(), job_choices(request).size() + 128);
  EXPECT_GT(trials.skipped, 0U);
}

// Only what wins by them is kept.
TEST(CandidateList, ComesBackToTheLikeliestWithTheCutsOfAllPartitioners) {
  const JobRequest request = wide_job();
  const planner_schedule::ScheduleGenerator* first = planner_schedule::schedule_generators().data();
  CandidateList candidates(request);
  std::size_t again = 0;
  std::size_t best = 0;
  while (const std::optional<JobChoice> choice = candidates.next()) {
    const bool has_all_cuts = choice->cut_effort == CutEffort::kAll;
    const bool wins = has_all_cuts && choice->generator == first;
    EXPECT_TRUE(has_all_cuts || again == 0);
    if (has_all_cuts) ++again;
    if (candidates.add(attempt_in(*choice, wins ? 0.9e6 : 1e6))) ++best;
  }
  EXPECT_GE(again, 2U);
  EXPECT_LE(again, 2048U / (16 * 16));  // By passes of micro-batches through stages.
  EXPECT_EQ(best, 2U);
  const JobTrials trials = candidates.take();
  EXPECT_EQ(std::count_if(
                trials.attempts.begin(), trials.attempts.end(),
                [](const JobAttempt& each) { return each.choice.cut_effort == CutEffort::kAll; }),
            1);
}

// Usual variants of endless action lists went on for minutes.
TEST(CandidateList, LooksAtFewUsualVariantsOfEndlessLists) {
  const JobRequest request = even_job(16, 8, 1U << 16U);
  const JobTrials trials =
      trials_of(request, [](const JobChoice& choice) { return attempt_in(choice, 1e9); });
  EXPECT_GE(trials.attempts.size(), 1U);
  EXPECT_LT(trials.attempts.size(), job_choices(request).size());
  EXPECT_GE(trials.skipped, 10U);
}

}  // namespace
}  // namespace spillway::job
