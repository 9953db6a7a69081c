#include "spillway/planner/job/job_file.h"

#include <gmock/gmock.h>

#include "even_jobs.h"
#include "spillway/base/error.h"
#include "support/damaged_text.h"
#include "support/golden_part.h"
#include "support/sanitized.h"

namespace spillway::job {
namespace {

using ::testing::StartsWith;

JobRequest small_job(std::string_view schedule) {
  JobRequest request = even_job(8, 4, 4, schedule);
  request.device_memory = Bytes(400 * kMega);
  request.link = {1e-3, TransferRate(1e8)};
  return request;
}

JobFile small_file(std::string_view schedule = "1f1b") {
  const JobRequest request = small_job(schedule);
  return describe_job(planned(request), request.chain);
}

TEST(JobFile, ComesBackAsItWasForEverySchedule) {
  std::size_t compared = 0;
  for (const planner_schedule::ScheduleGenerator& generator :
       planner_schedule::schedule_generators()) {
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
    EXPECT_EQ(read.peaks, file.peaks);
    ++compared;
  }
  EXPECT_GT(compared, 12U);
}

TEST(JobFile, KeepsWhatSumsShare) {
  JobRequest request = small_job("1f1b");
  request.data_parallel = 2;
  request.shared_sums = {2, TransferRate(1e6)};
  JobFile read = parse_job_file(to_text(describe_job(planned(request), request.chain)), "plan");
  EXPECT_EQ(read.costs.shared_sums.ranks, 2U);
  EXPECT_EQ(read.costs.shared_sums.rate.bytes_per_second(), 1e6);
  EXPECT_EQ(job_fault(read), std::nullopt);
  read.costs.shared_sums = {};
  EXPECT_NE(job_fault(read), std::nullopt) << "the step takes less then";
}

TEST(JobFile, KeepsTheMachine) {
  JobFile file = small_file();
  EXPECT_EQ(parse_job_file(to_text(file), "plan").cluster, "");
  file.cluster = R"({"name": "ours", "node": {"devices": 4, "nic": {"latency_seconds": 1e-6}}})";
  const std::string text = to_text(file);
  const JobFile read = parse_job_file(text, "plan");
  EXPECT_EQ(read.cluster,
            R"({"name":"ours","node":{"devices":4,"nic":{"latency_seconds":1e-06}}})");
  EXPECT_EQ(to_text(read), text);
}

TEST(JobFile, KeepsWhatStagesDoAboutTheirMemory) {
  JobRequest request = small_job("1f1b");
  request.device_memory = Bytes(70 * kMega);
  request.swap_rate = TransferRate(1e6);
  const JobPlan plan = planned(request);
  const JobFile read = parse_job_file(to_text(describe_job(plan, request.chain)), "plan");
  ASSERT_FALSE(plan.stages[0].recomputed.empty());
  ASSERT_EQ(read.stages[0].recomputed.size(), plan.stages[0].recomputed.size());
  EXPECT_EQ(read.stages[0].recomputed[0].layer, plan.stages[0].recomputed[0].layer);
  EXPECT_EQ(read.costs.stages[0].swapped, plan.stages[0].swapped);
}

TEST(JobFault, NamesTheFirstActionThatSomebodyChanged) {
  GoldenPart golden;
  JobFile file = small_file();
  std::swap(file.actions.ranks[1][0], file.actions.ranks[1][1]);  // Computed before it arrived.
  golden.add(job_fault(file).value_or(""));

  file = small_file();
  file.actions.ranks[2].pop_back();  // Its step.
  file.actions.ranks[2].pop_back();
  EXPECT_NE(job_fault(file), std::nullopt);

  file = small_file();
  auto& list = file.actions.ranks[0];
  std::vector<std::size_t> sends;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].kind == schedule::ActionKind::kSendForward) sends.push_back(i);
  // Sent behind the forward of the next one, in the order in which they were made.
  const schedule::Action first = list[sends[0]];
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(sends[0]));
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(sends[1]), first);
  golden.add(job_fault(file).value_or(""));
}

TEST(JobFault, NamesTheActionThatNeedsMoreThanTheDeviceHas) {
  GoldenPart golden;
  JobFile file = small_file();
  file.device_memory = Bytes(80 * kMega);
  golden.add(job_fault(file).value_or(""));
  file = small_file();
  file.fixed[3] = Bytes(500 * kMega);
  golden.add(job_fault(file).value_or(""));
}

TEST(JobFault, FindsFiguresThatDoNotBelongToTheActions) {
  GoldenPart golden;
  JobFile file = small_file();
  file.step_seconds *= 0.9;
  golden.add(job_fault(file).value_or(""));
  file = small_file();
  file.stages[2].first = 5;
  golden.add(job_fault(file).value_or(""));
  file = small_file();
  file.model.layers = 9;
  golden.add(job_fault(file).value_or(""));
}

TEST(JobFile, RefusesWhatIsNoPlan) {
  GoldenPart golden;
  const std::string text = to_text(small_file());
  const auto reason = [](std::string changed, const std::string& from, const std::string& to) {
    changed.replace(changed.find(from), from.size(), to);
    return refusal([&] { parse_job_file(changed, "job.json"); });
  };
  golden.add(reason(text, "spillway-job-plan", "spillway-plan"));
  golden.add(reason(text, "spillway-job-plan", "another"));
  golden.add(reason(text, "\"version\": 3", "\"version\": 4"));
  golden.add(reason(text, "\"data_parallel\": 1", "\"data_parallel\": 2"));
  golden.add(reason(text, "0F0", "0Q0"));
  golden.add(reason(text, "\"first\":0", "\"first\":-1"));
  golden.add(reason(text, "\"forward_seconds\":2.0", "\"forward_seconds\":-2.0"));
}

// All of it was read, and nobody wondered.
TEST(JobFile, RefusesWhatContradictsItself) {
  GoldenPart golden;
  const auto reason = [](const auto& change) {
    JobFile file = small_file();
    change(file);
    return refusal([&] { parse_job_file(to_text(file), "job.json"); });
  };
  golden.add(reason([](JobFile& f) { f.stages[1].recomputed = {{2, 0}, {2, 0}}; }));
  golden.add(reason([](JobFile& f) { f.stages[1].recomputed = {{3, 0}, {2, 0}}; }));
  golden.add(reason([](JobFile& f) { f.stages[3].last = 4'000'000'000U; }));
  golden.add(reason([](JobFile& f) { f.model.layers = 0; }));
  golden.add(reason([](JobFile& f) { f.order = {1, 0}; }));
  golden.add(reason([](JobFile& f) { f.bound_seconds = 1.01 * f.step_seconds; }));
  EXPECT_EQ(reason([](JobFile& f) { f.bound_seconds = f.step_seconds; }), "accepted");
  golden.add(reason([](JobFile& f) { f.actions.name = "1f1c"; }));
  golden.add(reason([](JobFile& f) { f.actions.name = "1f1b:chunks=2"; }));
  golden.add(reason([](JobFile& f) { f.partitioner = "spilway"; }));
}

TEST(JobFile, RefusesStagesThatSwapMoreThanTheyKeep) {
  GoldenPart golden;
  JobFile file = small_file();
  // Two layers of 10 MB each.
  EXPECT_EQ(file.stages[0].whole_stash, Bytes(20 * kMega));
  file.costs.stages[0].swapped = file.stages[0].whole_stash;
  EXPECT_EQ(parse_job_file(to_text(file), "job.json").costs.stages[0].swapped, Bytes(20 * kMega));
  file.costs.stages[0].swapped += Bytes(1);
  golden.add(refusal([&] { parse_job_file(to_text(file), "job.json"); }));
}

// A limit whose name was misspelt was none.
TEST(JobFile, RefusesKeysThatItDoesNotKnow) {
  GoldenPart golden;
  const std::string text = to_text(small_file());
  const auto reason = [&](const std::string& behind) {
    std::string changed = text;
    const std::size_t object = changed.find('{', changed.find(behind));
    changed.insert(object + 1, "\"frist\":1,");
    return refusal([&] { parse_job_file(changed, "job.json"); });
  };
  golden.add(reason("{"));
  golden.add(reason("\"stages\""));
  golden.add(reason("\"links\""));
  golden.add(reason("\"host_link\""));
  golden.add(reason("\"figures\""));
  std::string misspelt = text;
  misspelt.replace(misspelt.find("device_memory_bytes"), 19, "device_memory_byte");
  golden.add(refusal([&] { parse_job_file(misspelt, "job.json"); }));
}

TEST(JobFault, CountsWhatHostsHold) {
  GoldenPart golden;
  JobRequest request = small_job("1f1b");
  request.device_memory = Bytes(70 * kMega);
  request.swap_rate = TransferRate(1e9);
  request.variant.memory_reduction = JobMemoryReduction::kStages;
  const JobPlan free = planned(request);
  ASSERT_GT(free.memory[0].host, Bytes(0));
  request.host_memory = free.memory[0].host;
  const JobPlan plan = planned(request);
  JobFile file = parse_job_file(to_text(describe_job(plan, request.chain)), "plan");
  EXPECT_EQ(file.host_memory, request.host_memory);
  EXPECT_EQ(job_fault(file), std::nullopt);
  file.host_memory = request.host_memory - Bytes(1);
  golden.add(job_fault(file).value_or(""));
}

TEST(JobFile, IsNeverReadInPart) {
  const std::string text = to_text(small_file());
  for (std::size_t size = 0; size + 2 < text.size(); size += 7)
    EXPECT_THROW(parse_job_file(text.substr(0, size), "cut"), ConfigError) << size;
}

/// Whatever happens to a file: it is refused in one sentence that names it; or it is read, can be
/// evaluated, written and read again. Whether it was read.
bool is_read_or_refused(const std::string& text) {
  std::string sentence;
  bool is_read = false;
  try {
    const JobFile file = parse_job_file(text, "changed");
    is_read = true;
    sentence = job_fault(file).value_or("");
    const std::string written = to_text(file);
    EXPECT_EQ(to_text(parse_job_file(written, "again")), written);
  } catch (const ConfigError& error) {
    sentence = error.what();
    EXPECT_THAT(sentence, StartsWith("changed"));
  }
  EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
  EXPECT_LE(sentence.size(), 500U) << sentence;
  return is_read;
}

/// Of plans that have all that a file can have.
std::vector<std::string> texts_of_plans() {
  std::vector<std::string> texts;
  for (const char* schedule : {"1f1b", "chimera", "gems-mast", "pipeoffload"}) {
    JobRequest request = even_job(4, 2, 4, schedule);
    request.link = {1e-3, TransferRate(1e8)};
    request.swap_rate = TransferRate(2e7);
    request.device_memory = planned(request).peak() * 9 / 10;
    texts.push_back(to_text(describe_job(planned(request), request.chain)));
  }
  return texts;
}

TEST(JobFile, SurvivesDamage) {
  const std::vector<std::string> texts = texts_of_plans();
  std::size_t read = 0;
  const auto rounds = tries<std::uint64_t>(12000, 1200);
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    SCOPED_TRACE(seed);
    read += is_read_or_refused(DamagedText(seed)(texts[seed % texts.size()])) ? 1 : 0;
  }
  EXPECT_GT(read, rounds / 100);
  EXPECT_LT(read, rounds / 2);
}

TEST(JobFile, SurvivesExtremeNumbers) {
  std::size_t read = 0;
  for (const std::string& text : texts_of_plans())
    for_each_extreme(text, [&](const std::string& changed) {
      SCOPED_TRACE(changed);
      read += is_read_or_refused(changed) ? 1 : 0;
    });
  EXPECT_GT(read, 100U);
}

TEST(JobFault, FindsAStepThatNeverEnds) {
  GoldenPart golden;
  JobFile file = small_file();
  file.costs.peer.rate = TransferRate(1e-320);
  golden.add(job_fault(file).value_or(""));
}

}  // namespace
}  // namespace spillway::job
