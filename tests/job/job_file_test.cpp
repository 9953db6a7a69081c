#include "spillway/planner/job/job_file.h"

#include <gmock/gmock.h>

#include <random>

#include "even_jobs.h"
#include "spillway/base/error.h"

namespace spillway::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

JobRequest small_job(std::string_view schedule) {
  JobRequest request = even_job(8, 4, 4, schedule);
  request.device_memory = Bytes(400 * kMega);
  request.link = {1e-3, 1e8};
  return request;
}

JobFile small_file(std::string_view schedule = "1f1b") {
  const JobRequest request = small_job(schedule);
  return describe_job(planned(request), request.chain);
}

TEST(JobFile, ComesBackAsItWasForEverySchedule) {
  std::size_t compared = 0;
  for (const ScheduleGenerator& generator : schedule_generators()) {
    SCOPED_TRACE(generator.name);
    JobFile file;
    try {
      file = small_file(generator.name);
    } catch (const ConfigError&) {
      continue;  // Not for these counts.
    }
    const std::string text = to_text(file);
    const JobFile read = parse_job_file(text, "plan");
    EXPECT_EQ(to_text(read), text);
    EXPECT_EQ(read.actions.ranks, file.actions.ranks);
    EXPECT_EQ(job_fault(read), std::nullopt);
    ++compared;
  }
  EXPECT_GT(compared, 12U);
}

TEST(JobFile, KeepsWhatStagesDoAboutTheirMemory) {
  JobRequest request = small_job("1f1b");
  request.device_memory = Bytes(70 * kMega);
  request.swap_bytes_per_second = 1e6;
  const JobPlan plan = planned(request);
  const JobFile read = parse_job_file(to_text(describe_job(plan, request.chain)), "plan");
  ASSERT_FALSE(plan.stages[0].recomputed.empty());
  ASSERT_EQ(read.stages[0].recomputed.size(), plan.stages[0].recomputed.size());
  EXPECT_EQ(read.stages[0].recomputed[0].layer, plan.stages[0].recomputed[0].layer);
  EXPECT_EQ(read.stages[0].swapped, plan.stages[0].swapped);
}

TEST(JobFault, NamesTheFirstActionThatSomebodyChanged) {
  JobFile file = small_file();
  std::swap(file.actions.ranks[1][0], file.actions.ranks[1][1]);  // Computed before it arrived.
  EXPECT_THAT(job_fault(file), Optional(HasSubstr("rank 1, action")));

  file = small_file();
  file.actions.ranks[2].pop_back();  // Its step.
  file.actions.ranks[2].pop_back();
  EXPECT_NE(job_fault(file), std::nullopt);

  file = small_file();
  auto& list = file.actions.ranks[0];
  std::vector<std::size_t> sends;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].kind == ActionKind::kSendForward) sends.push_back(i);
  // Sent behind the forward of the next one, in the order in which they were made.
  const Action first = list[sends[0]];
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(sends[0]));
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(sends[1]), first);
  EXPECT_THAT(job_fault(file), Optional(HasSubstr("action")));
}

TEST(JobFault, NamesTheActionThatNeedsMoreThanTheDeviceHas) {
  JobFile file = small_file();
  file.device_memory = Bytes(80 * kMega);
  EXPECT_THAT(job_fault(file), Optional(HasSubstr("rank 0, action 4 (0F2): it is the first to")));
  file = small_file();
  file.fixed[3] = Bytes(500 * kMega);
  EXPECT_THAT(job_fault(file), Optional(HasSubstr("before its first action")));
}

TEST(JobFault, FindsFiguresThatDoNotBelongToTheActions) {
  JobFile file = small_file();
  file.step_seconds *= 0.9;
  EXPECT_THAT(job_fault(file), Optional(HasSubstr("it was changed")));
  file = small_file();
  file.stages[2].first = 5;
  EXPECT_THAT(job_fault(file), Optional(HasSubstr("stage 2 begins with layer 5")));
}

TEST(JobFile, RefusesWhatIsNoPlan) {
  const std::string text = to_text(small_file());
  const auto reason = [](std::string changed, const std::string& from, const std::string& to) {
    changed.replace(changed.find(from), from.size(), to);
    return refusal([&] { parse_job_file(changed, "job.json"); });
  };
  EXPECT_THAT(reason(text, "spillway-job-plan", "spillway-plan"), HasSubstr("job.json: "));
  EXPECT_THAT(reason(text, "\"version\": 1", "\"version\": 2"), HasSubstr("newer"));
  EXPECT_THAT(reason(text, "\"groups\": 1", "\"groups\": 2"), HasSubstr("2 groups"));
  EXPECT_THAT(reason(text, "0F0", "0Q0"), HasSubstr("job.json, actions, line 1, column 2"));
  EXPECT_THAT(reason(text, "\"first\":0", "\"first\":-1"), HasSubstr("stages[0].first"));
  EXPECT_THAT(reason(text, "\"forward_seconds\":2.0", "\"forward_seconds\":-2.0"),
              HasSubstr("stages[0].forward_seconds"));
}

TEST(JobFile, IsNeverReadInPart) {
  const std::string text = to_text(small_file());
  for (std::size_t size = 0; size + 2 < text.size(); size += 7)
    EXPECT_THROW(parse_job_file(text.substr(0, size), "cut"), ConfigError) << size;
}

TEST(JobFile, SurvivesAnyChangeOfItsLetters) {
  const std::string text = to_text(small_file());
  std::mt19937 random(20261123);
  constexpr std::string_view kLetters = "0123456789-.,:[]{}\"FBSRe_ \n";
  std::size_t refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string changed = text;
    for (int i = 0; i < 1 + round % 3; ++i)
      changed[random() % changed.size()] = kLetters[random() % kLetters.size()];
    try {
      refused += job_fault(parse_job_file(changed, "changed")).has_value() ? 1 : 0;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("changed"));
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000U);
}

}  // namespace
}  // namespace spillway::planner
