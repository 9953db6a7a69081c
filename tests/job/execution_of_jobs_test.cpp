// What executes a plan: from the plan to the file, and from the file to each rank.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "even_jobs.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/planner/job/measured_model.h"
#include "spillway/profile/import/trace_import.h"
#include "spillway/profile/op_sequence.h"
#include "support/chain_profile.h"
#include "support/damaged_text.h"
#include "support/golden_part.h"
#include "support/piper_layers.h"
#include "support/sanitized.h"

namespace spillway::job {
namespace {

using nlohmann::json;
using schedule::ExecutionPlan;
using schedule::OperatorRange;
using ::testing::StartsWith;

constexpr std::uint32_t kLayers = 11;  // Of the chain, with its loss one more.

JobRequest recorded_job(std::string_view schedule = "1f1b") {
  JobRequest request;
  request.chain = measured_model(chain_profile({.layers = kLayers})).chain;
  request.ranks = 4;
  request.micro_batches = 4;
  request.schedule = schedule;
  request.link = {1e-5, TransferRate(1e10)};
  return request;
}

/// With swaps and recomputation.
JobRequest tight_job(std::string_view schedule = "1f1b") {
  JobRequest request = recorded_job(schedule);
  request.swap_rate = TransferRate(1e9);
  request.device_memory = planned(request).peak() * 8 / 10;
  return request;
}

JobFile file_of(const JobRequest& request) { return describe_job(planned(request), request.chain); }

void expect_equal(const ExecutionPlan& a, const ExecutionPlan& b) {
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.order, b.order);
  EXPECT_EQ(a.stages, b.stages);
  EXPECT_EQ(a.micro_batch_size, b.micro_batch_size);
  EXPECT_EQ(a.actions.name, b.actions.name);
  EXPECT_EQ(a.actions.ranks, b.actions.ranks);
  EXPECT_EQ(a.actions.placement, b.actions.placement);
  EXPECT_EQ(a.actions.data_parallel, b.actions.data_parallel);
}

/// What a reader says about a text, or "read".
std::string told(const std::string& text) {
  return refusal([&] {
    const ExecutionPlan plan = schedule::parse_execution_plan(text, "job.json");
    for (std::uint32_t rank = 0; rank < plan.rank_count(); ++rank)
      schedule::rank_schedule(plan, rank);
  });
}

TEST(ExecutionOfJobs, ComesOutOfTheFileAsThePlanHasIt) {
  std::size_t compared = 0;
  for (const planner_schedule::ScheduleGenerator& generator :
       planner_schedule::schedule_generators()) {
    SCOPED_TRACE(generator.name);
    JobFile file;
    try {
      file = file_of(recorded_job(generator.name));
    } catch (const ConfigError&) {
      continue;  // Not for these counts.
    }
    const std::string text = to_text(file);
    const ExecutionPlan read = schedule::parse_execution_plan(text, "job.json");
    expect_equal(read, execution_of(file));
    expect_equal(execution_of(parse_job_file(text, "job.json")), read);
    EXPECT_EQ(to_text(parse_job_file(text, "job.json")), text);
    ++compared;
  }
  EXPECT_GT(compared, 12U);
}

TEST(ExecutionOfJobs, KeepsWhatStagesDoAboutTheirMemory) {
  const JobFile file = file_of(tight_job());
  const ExecutionPlan read = schedule::parse_execution_plan(to_text(file), "job.json");
  expect_equal(read, execution_of(file));
  std::size_t recomputed = 0;
  Bytes swapped;
  for (std::uint32_t stage = 0; stage < read.stages.size(); ++stage) {
    recomputed += schedule::recomputed_operators_of(read, stage).size();
    swapped += read.stages[stage].swapped;
    EXPECT_EQ(read.stages[stage].swapped, file.costs.stages[stage].swapped);
    EXPECT_EQ(read.stages[stage].stash, file.costs.stages[stage].stash);
  }
  EXPECT_TRUE(recomputed > 0 || swapped > Bytes(0));
}

// The forward of the chain is its layers and the loss; behind it come backward and update.
TEST(ExecutionOfJobs, CoversTheForwardOfTheStepOnce) {
  const profile::StepProfile profile = chain_profile({.layers = kLayers});
  const ExecutionPlan plan = execution_of(file_of(recorded_job()));
  ASSERT_TRUE(plan.step);
  EXPECT_EQ(plan.step->operators, profile.tape.ops.size());
  EXPECT_EQ(plan.step->operator_hash, profile::OpSequence(profile.tape.ops).identity());
  std::vector<int> runs(profile.tape.ops.size(), 0);
  for (std::uint32_t stage = 0; stage < plan.stages.size(); ++stage)
    for (const OperatorRange& range : schedule::operators_of(plan, stage))
      for (std::uint32_t op = range.first; op <= range.last; ++op) ++runs[op];
  for (std::size_t op = 0; op < runs.size(); ++op)
    EXPECT_EQ(runs[op], op <= kLayers ? 1 : 0) << "operator " << op;
  // Layers are called after their operator.
  const JobFile file = file_of(recorded_job());
  for (std::uint32_t stage = 0; stage < plan.stages.size(); ++stage) {
    const auto ranges = schedule::operators_of(plan, stage);
    EXPECT_THAT(file.stages[stage].first_name,
                ::testing::EndsWith("#" + std::to_string(ranges.front().first)));
    EXPECT_THAT(file.stages[stage].last_name,
                ::testing::EndsWith("#" + std::to_string(ranges.back().last)));
  }
}

// Ranks do not count what only allocates: "stage 1 begins with aten::empty_like, number 3 of that
// name in forward, and forward has 0".
TEST(ExecutionOfJobs, BeginsStagesWithOperatorsThatNotEveryRankRuns) {
  const JobPlan plan = planned(recorded_job());
  partition::ModelChain chain = recorded_job().chain;
  for (const partition::StageEstimate& stage : plan.stages)
    chain.layers[stage.first_layer].name = "aten::empty_like #0";
  const JobFile file = describe_job(plan, chain);
  ASSERT_GT(plan.stages.size(), 1U);
  for (std::size_t k = 0; k < plan.stages.size(); ++k) {
    const partition::StageEstimate& stage = plan.stages[k];
    ASSERT_GT(stage.last_layer, stage.first_layer);
    EXPECT_EQ(file.stages[k].begins_with, "aten::convolution");
    // All convolutions before it but the first one of each stage.
    EXPECT_EQ(file.stages[k].operators_before, stage.first_layer - k);
    EXPECT_EQ(execution_of(file).stages[k].first_operator, "aten::convolution");
  }
}

TEST(ExecutionOfJobs, TellsAnotherStepApart) {
  profile::StepProfile other = chain_profile({.layers = kLayers});
  other.tape.ops[3].signature += 1;
  EXPECT_NE(measured_model(other).chain.step, recorded_job().chain.step);
  EXPECT_NE(measured_model(chain_profile({.layers = kLayers + 1})).chain.step,
            recorded_job().chain.step);
}

TEST(ExecutionOfJobs, SaysThatMicroBatchesAreLargerThanRecorded) {
  JobRequest request = recorded_job();
  request.batch = 8;
  request.micro_batches = 4;
  JobFile file = file_of(request);
  ASSERT_EQ(file.batch, 8U);
  EXPECT_EQ(schedule::parse_execution_plan(to_text(file), "job.json").micro_batch_size,
            8 / file.micro_batches);
}

// Nodes of its graph stand for operators; no run has their hash.
TEST(ExecutionOfJobs, CountsTheNodesOfAnImportedProfile) {
  const profile::StepProfile profile = profile::import_piper(three_piper_layers(), "file");
  JobRequest request = recorded_job();
  request.chain = measured_model(profile).chain;
  request.ranks = 3;
  const ExecutionPlan plan = schedule::parse_execution_plan(to_text(file_of(request)), "job.json");
  EXPECT_EQ(plan.step->operators, profile.tape.ops.size());
  for (std::uint32_t stage = 0; stage < 3; ++stage)
    EXPECT_EQ(schedule::operators_of(plan, stage), (std::vector<OperatorRange>{{stage, stage}}));
}

// A list of costs is of no step: its plan may be checked and simulated, and not run.
TEST(ExecutionOfJobs, IsRefusedWithoutOperators) {
  JobRequest request = recorded_job();
  request.chain = even_chain(8);
  const std::string text = to_text(file_of(request));
  EXPECT_FALSE(json::parse(text).contains("step"));
  EXPECT_EQ(job_fault(parse_job_file(text, "job.json")), std::nullopt);
  EXPECT_EQ(told(text),
            "job.json: it does not say which operators its layers are, so it cannot be run (make "
            "the plan again with: spillway plan-job PROFILE --ranks COUNT --out FILE)");
}

// Versions 1 and 2 had other words; 1 was of plans without operators.
TEST(ExecutionOfJobs, IsReadFromOlderFiles) {
  GoldenPart golden;
  json document = json::parse(to_text(file_of(recorded_job())));
  const std::string schedule = document["schedule"];
  document["groups"] = document["data_parallel"];
  document.erase("data_parallel");
  golden.add(told(document.dump()));
  document["version"] = 2;
  document["schedule"] = schedule + ":windows";
  EXPECT_EQ(told(document.dump()), "accepted");
  EXPECT_EQ(parse_job_file(document.dump(), "job.json").actions.name, schedule + ":idle-offload");
  document.erase("step");
  golden.add(told(document.dump()));
  document["version"] = 1;
  golden.add(told(document.dump()));
}

TEST(ExecutionOfJobs, RefusesAFileThatLacksAnyOfItsKeys) {
  GoldenPart golden;
  const json document = json::parse(to_text(file_of(tight_job())));
  ASSERT_EQ(told(document.dump()), "accepted");
  for (const char* pointer :
       {"/format", "/version", "/schedule", "/layers", "/ranks", "/data_parallel", "/micro_batches",
        "/step/operators", "/step/operator_hash", "/step/layer_of_operator", "/stages",
        "/stages/1/first", "/stages/1/last", "/stages/1/recomputed", "/stages/1/stash_bytes",
        "/stages/1/swapped_bytes", "/actions"}) {
    SCOPED_TRACE(pointer);
    const json::json_pointer place(pointer);
    json lacking = document;
    lacking.at(place.parent_pointer()).erase(place.back());
    golden.add(told(lacking.dump()));
    for (const json& other : {json(nullptr), json(-1), json("x"), json::array({"x"})}) {
      json changed = document;
      changed[place] = other;
      const std::string sentence = told(changed.dump());
      if (std::string_view(pointer) == "/schedule" && other.is_string()) continue;  // A name.
      EXPECT_THAT(sentence, StartsWith("job.json")) << other;
      EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
    }
  }
  json newer = document;
  newer["version"] = 4;
  newer.erase("stages");
  golden.add(told(newer.dump()));
}

/// Each number of what is executed becomes another one. Sizes and the number of operators of the
/// whole step are known to the profile alone, and larger micro-batches to the user.
TEST(ExecutionOfJobs, RefusesEachNumberThatSomebodyChanged) {
  const json document = json::parse(to_text(file_of(tight_job())));
  std::size_t refused = 0;
  const json flat = document.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    const bool is_of_execution = pointer == "/layers" || pointer == "/ranks" ||
                                 pointer == "/data_parallel" || pointer == "/micro_batches" ||
                                 pointer.starts_with("/step/layer") ||
                                 pointer.ends_with("/first") || pointer.ends_with("/last");
    if (!is_of_execution) continue;
    for (const std::int64_t change : {std::int64_t{-2}, std::int64_t{0}, std::int64_t{1},
                                      value.get<std::int64_t>() + 1, std::int64_t{1} << 40}) {
      if (value == change) continue;
      SCOPED_TRACE(message("{}: {} instead of {}", pointer, change, value.dump()));
      json edited = document;
      edited[json::json_pointer(pointer)] = change;
      const std::string sentence = told(edited.dump());
      EXPECT_THAT(sentence, StartsWith("job.json: "));
      EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
      ++refused;
    }
  }
  EXPECT_GT(refused, 80U);
}

TEST(ExecutionOfJobs, SurvivesDamage) {
  const std::string text = to_text(file_of(tight_job("gems-mast")));
  std::size_t read = 0;
  const auto rounds = tries<std::uint64_t>(4000, 400);
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    SCOPED_TRACE(seed);
    const std::string sentence = told(DamagedText(seed)(text));
    if (sentence == "accepted") {
      ++read;
      continue;
    }
    EXPECT_THAT(sentence, StartsWith("job.json"));
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
    EXPECT_LE(sentence.size(), 500U) << sentence;
  }
  EXPECT_GT(read, rounds / 100);
  EXPECT_LT(read, rounds * 9 / 10);
  for (std::size_t size = 0; size + 2 < text.size(); size += 97)
    EXPECT_THAT(told(text.substr(0, size)), StartsWith("job.json: ")) << size;
}

}  // namespace
}  // namespace spillway::job
