#include "planning/job_command.h"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "planning_command.h"
#include "spillway/planner/partition/partitioners.h"
#include "spillway/planner/schedule/generators.h"
#include "spillway/profile/import/trace_import.h"
#include "support/branched_graph.h"
#include "support/documented_keys.h"

namespace spillway::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// The chain of six layers and a loss on three ranks.
class JobCommand : public PlanningCommand {
 protected:
  PlanOptions job() const {
    PlanOptions options;
    options.common.profile = profile_;
    options.job.ranks = "3";
    options.job.micro_batches = "6";
    options.job.schedule = "1f1b";
    return options;
  }

  json told_chosen() const {
    PlanOptions options = job();
    options.job.schedule.clear();
    return told(options);
  }
};

TEST_F(JobCommand, HasTheDocumentedKeysAndNoOthers) {
  PlanOptions options = job();
  options.job.device_memory = "1GiB";
  const auto page = documented(SPILLWAY_TEST_PLANNING_OUTPUT, "Many ranks");
  const json plan = told(options);
  Keys expected;
  for (const auto& [key, meaning] : page) expected.insert(key);
  expected.erase("machine");
  EXPECT_EQ(keys_of(plan), expected);
  for (const char* key : {"order", "stages", "per_rank", "hosts", "attempts", "model"})
    EXPECT_EQ(keys_within(plan[key]), keys_in(page.at(key).text)) << key;
  options.job.device_memory.clear();
  expected.erase("device_memory_bytes");
  EXPECT_EQ(keys_of(told(options)), expected);
}

TEST_F(JobCommand, CutsTheProfileIntoStages) {
  const json plan = told(job());
  ASSERT_EQ(plan["stages"].size(), 3U);
  EXPECT_EQ(plan["stages"][0]["first"], 0);
  EXPECT_EQ(plan["stages"][0]["first_name"], "aten::convolution #0");
  EXPECT_EQ(plan["stages"][2]["last"], 6);
  EXPECT_EQ(plan["stages"][2]["last_name"], "aten::mse_loss #6");
  EXPECT_EQ(plan["schedule"], "1f1b");
  EXPECT_EQ(plan["data_parallel"], 1);
  EXPECT_GE(plan["step_seconds"], plan["bound"]);
  EXPECT_NEAR(plan["gap"].get<double>(),
              plan["step_seconds"].get<double>() / plan["bound"].get<double>() - 1.0, 1e-12);
  // Three stages of 24 ms (and the loss of 1 ms): 8 slots, and the update of two layers each.
  EXPECT_NEAR(plan["step_seconds"].get<double>(), 8 * 0.024 + 0.002, 0.009);
}

TEST_F(JobCommand, TellsTheSameInWords) {
  PlanOptions options = job();
  options.job.device_memory = "1GiB";
  EXPECT_THAT(plan(options),
              AllOf(HasSubstr("3 ranks of 1.00 GiB, 6 micro-batches per step"), HasSubstr("1f1b"),
                    HasSubstr("stage"), HasSubstr("aten::convolution #0"),
                    HasSubstr("messages between ranks take no time"),
                    HasSubstr("; micro-batches: 3"), Not(HasSubstr("data parallel")),
                    HasSubstr("guessed   where forward ends, and which layers")));
  options.job.data_parallel = "3";
  EXPECT_THAT(plan(options), HasSubstr("3 pipelines of 1 rank: each has the whole model"));
  options.job.data_parallel.clear();
  options.job.groups = "2";
  EXPECT_THAT(plan_refusal(options),
              HasSubstr("--groups " + options.job.groups + " is called --data-parallel now"));
  options.job.groups.clear();
  options.job.schedule = "auto";
  EXPECT_THAT(plan(options), AllOf(HasSubstr("All schedules that were tried"),
                                   HasSubstr("which changes results")));
}

TEST_F(JobCommand, PutsBranchesIntoAnotherOrderWhereTheProfileKnowsWhatWaits) {
  PlanOptions options = job();
  options.job.ranks = "2";
  // Branches of 12, 18 and 6 ms: 24 ms beside 12 as recorded.
  options.common.profile = in_folder("branches.json");
  profile::StepProfile branches = profile::import_pipedream(branched_graph({4, 6, 2}), "branches");
  write(options.common.profile, profile::to_text(branches));
  json plan = told(options);
  EXPECT_EQ(plan["order"]["is_open"], true);
  EXPECT_EQ(plan["order"]["is_exact"], true);
  EXPECT_EQ(plan["order"]["loss"], 0.0);
  EXPECT_NEAR(plan["order"]["recorded_seconds"].get<double>(), 0.024, 0.0005);
  EXPECT_NEAR(plan["order"]["seconds"].get<double>(), 0.018, 0.0005);
  // Each layer as recorded is in one stage.
  std::multiset<int> layers;
  for (const json& stage : plan["stages"])
    for (const json& range : stage["ranges"])
      for (int layer = range[0]; layer <= range[1]; ++layer) layers.insert(layer);
  EXPECT_THAT(layers, ::testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(this->plan(options), AllOf(HasSubstr("24.6 % quicker than as recorded"),
                                         HasSubstr("no order is quicker")));

  options.out = in_folder("branches.plan.json");
  this->plan(options);
  PlanOptions check;
  check.job.check = options.out;
  EXPECT_THAT(this->plan(check), HasSubstr("no deadlock"));
  options.out.clear();

  options.job.order = "recorded";
  plan = told(options);
  EXPECT_EQ(plan["order"]["is_open"], false);
  EXPECT_TRUE(plan["order"]["loss"].is_null());
  EXPECT_EQ(plan["stages"][1]["ranges"].size(), 1U);
  // A recorded profile does not know; its tensors may be trusted.
  branches.hidden_dependences.reset();
  write(options.common.profile, profile::to_text(branches));
  options.job.order = "auto";
  EXPECT_EQ(told(options)["order"]["is_open"], false);
  options.job.order = "any";
  EXPECT_NEAR(told(options)["order"]["seconds"].get<double>(), 0.018, 0.0005);
  options.job.order = "best";
  EXPECT_THAT(plan_refusal(options), HasSubstr("--order: 'best' is neither auto nor"));
}

TEST_F(JobCommand, ComparesAllSchedulesAndPartitioners) {
  PlanOptions options = job();
  options.job.schedule.clear();
  options.job.compare = true;
  json rows = told(options);
  const auto page = documented(SPILLWAY_TEST_PLANNING_OUTPUT, "Comparisons");
  for (const json& row : rows) {
    Keys expected;
    for (const auto& [key, meaning] : page)
      if (row["is_possible"] || !meaning.is_of_plan) expected.insert(key);
    expected.erase("machine");
    EXPECT_EQ(keys_of(row), expected);
  }
  // The last one is what the chooser takes.
  const json best = rows.back();
  rows.erase(rows.size() - 1);
  EXPECT_EQ(best["has_any_data_parallel"], true);
  EXPECT_EQ(best["data_parallel"], told_chosen()["data_parallel"]);
  EXPECT_EQ(best["step_seconds"], told_chosen()["step_seconds"]);
  std::set<std::string> schedules, cutters;
  double last = 0.0;
  for (const json& row : rows) {
    schedules.insert(row["schedule"]);
    cutters.insert(row["partitioner"]);
    EXPECT_EQ(row["data_parallel"], 1);
    EXPECT_EQ(row["has_any_data_parallel"], false);
    if (!row["is_possible"]) continue;
    EXPECT_GE(row["step_seconds"].get<double>(), last);
    last = row["step_seconds"];
  }
  EXPECT_EQ(schedules.size(), planner::schedule_generators().size());
  EXPECT_EQ(cutters.size(), planner::partitioners().size());
  EXPECT_THAT(plan(options),
              AllOf(HasSubstr("torchgpipe"), HasSubstr("gems-mast"),
                    HasSubstr("one pipeline over all 3 ranks; the last row is the best with any")));
  options.job.data_parallel = "3";
  EXPECT_THAT(plan(options),
              AllOf(HasSubstr("3 data-parallel replicas of 1 rank\n"), Not(HasSubstr("last row"))));
}

/// Steps by partitioner, of the fastest schedule with one stage on each rank.
std::map<std::string, double> steps_by_partitioner(const json& rows) {
  std::map<std::string, double> steps;
  const std::set<std::string> several{"interleaved", "breadth-first", "gis",
                                      "gis-h",       "zb-v",          "v-half",
                                      "v-min",       "pipeoffload",   "dualpipe-v"};
  for (const json& row : rows)
    if (row["is_possible"] && !row["has_any_data_parallel"] && several.count(row["schedule"]) == 0)
      steps.emplace(row["partitioner"], row["step_seconds"]);
  return steps;
}

// Where the model fits on each device, data-parallel replicas of one rank would leave nothing to
// compare.
TEST_F(JobCommand, ComparesCutsThatDiffer) {
  PlanOptions options = job();
  options.common.profile = in_folder("uneven.json");
  // Equal parameters, and a first layer that takes as long as the five others.
  profile::StepProfile uneven = chain_profile();
  uneven.tape.ops[0].time *= 5;
  uneven.tape.ops[12].time *= 5;  // Its backward.
  write(options.common.profile, profile::to_text(uneven));
  options.job.schedule.clear();
  options.job.compare = true;
  const auto steps = steps_by_partitioner(told(options));
  ASSERT_EQ(steps.size(), planner::partitioners().size());
  for (const auto& [name, seconds] : steps) EXPECT_GE(seconds, steps.at("spillway")) << name;
  EXPECT_GT(steps.at("parameters"), 1.05 * steps.at("spillway"));
}

TEST_F(JobCommand, StoresAPlanThatPassesItsCheck) {
  PlanOptions options = job();
  options.out = in_folder("job.json");
  options.job.device_memory = "1GiB";
  EXPECT_THAT(plan(options), HasSubstr("plan --check"));
  PlanOptions check;
  check.job.check = options.out;
  EXPECT_THAT(plan(check), AllOf(HasSubstr("no deadlock"), HasSubstr("within 1.00 GiB")));
  const json checked = told(check);
  Keys expected;
  for (const auto& [key, meaning] : documented(SPILLWAY_TEST_PLANNING_OUTPUT, "Checks"))
    expected.insert(key);
  EXPECT_EQ(keys_of(checked), expected);
  EXPECT_EQ(checked["ranks"], 3);
  EXPECT_EQ(checked["step_seconds"], told(options)["step_seconds"]);

  std::string text = file_text(options.out);
  const std::size_t at = text.find("0SEND_F0,0F1");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 12, "0F1");  // Somebody takes a message out.
  write(options.out, text);
  EXPECT_THAT(plan_refusal(check), AllOf(HasSubstr("job.json: rank "), HasSubstr("action ")));
}

TEST_F(JobCommand, TellsWhatTheSearchTriedAndWhatItAssumes) {
  PlanOptions options = job();
  options.job.schedule.clear();
  options.job.micro_batches.clear();
  options.job.batch = "12";
  const json plan = told(options);
  EXPECT_EQ(plan["batch"], 12);
  EXPECT_EQ(12 % plan["micro_batches"].get<int>(), 0);
  std::set<std::string> variants;
  for (const json& each : plan["attempts"]) variants.insert(each["variant"]);
  EXPECT_THAT(variants, testing::IsSupersetOf({"slots=1", "chunks=2", "replicas=4"}));
  EXPECT_GT(plan["pruned"], 0);
  EXPECT_THAT(this->plan(options), AllOf(HasSubstr("the work of 12 micro-batches"),
                                         HasSubstr("k times as long"), HasSubstr(" plans")));
  options.job.schedule = "1f1b-capped:slots=1,stages";
  EXPECT_THAT(this->plan(options), HasSubstr("1f1b-capped:slots=1,stages ("));
  EXPECT_EQ(told(options)["variant"], "slots=1,stages");
}

TEST_F(JobCommand, TellsWhatWholeLayersCost) {
  PlanOptions options = job();
  EXPECT_THAT(plan(options), HasSubstr("integrality gap 0.0 %"));
  options.job.schedule = "1f1b:stages";
  options.job.device_memory =
      std::to_string(told(options)["peak_bytes"].get<std::uint64_t>() * 4 / 5 >> 10) + "KiB";
  const json tight = told(options);
  char gap[64];
  std::snprintf(gap, sizeof gap, "integrality gap %.1f %%",
                100.0 * tight["rounding_gap"].get<double>());
  EXPECT_GT(tight["rounding_gap"].get<double>(), 0.001);
  EXPECT_THAT(plan(options), HasSubstr(gap));
}

TEST_F(JobCommand, DrawsRanksAndTheirMemory) {
  PlanOptions options = job();
  options.job.picture = in_folder("job.svg");
  options.job.device_memory = "256MiB";
  plan(options);
  const std::string svg = file_text(options.job.picture);
  EXPECT_THAT(svg,
              AllOf(HasSubstr("<svg xmlns="), HasSubstr(">rank 0<"), HasSubstr(">rank 2<"),
                    HasSubstr("<polygon"), HasSubstr("1F0: "), HasSubstr("256 MiB of a device")));
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(svg.find("http", 60), std::string::npos);  // Nothing is fetched.
}

// Two replicas count their micro-batches each from the first.
TEST_F(JobCommand, DrawsReplicasSoThatTheyDiffer) {
  PlanOptions options = job();
  options.job.picture = in_folder("job.svg");
  plan(options);
  EXPECT_THAT(file_text(options.job.picture),
              Not(AnyOf(HasSubstr("replica"), HasSubstr("fill-opacity"))));
  options.job.ranks = "2";
  options.job.micro_batches = "4";
  options.job.schedule = "chimera";
  plan(options);
  const std::string svg = file_text(options.job.picture);
  EXPECT_THAT(svg, AllOf(HasSubstr("pale: odd replicas"), HasSubstr("1b is micro-batch b of"),
                         HasSubstr(">0a<"), HasSubstr(">1b<"), HasSubstr("fill-opacity")));
  options.job.schedule = "gems-master";
  plan(options);
  EXPECT_THAT(file_text(options.job.picture), HasSubstr("numbers are those of replicas"));
}

TEST_F(JobCommand, RefusesWhatHasNoPlaceOrNoSense) {
  const auto refused = [&](const auto& change) {
    PlanOptions options = job();
    change(options);
    return plan_refusal(options);
  };
  EXPECT_THAT(refused([](PlanOptions& w) { w.common.budget = "1GiB"; }),
              HasSubstr("--budget 1GiB is about one device"));
  EXPECT_THAT(refused([](PlanOptions& w) { w.job.ranks.clear(); }),
              HasSubstr("--ranks is missing"));
  EXPECT_THAT(refused([](PlanOptions& w) {
                w.common.budget = "1GiB";
                w.job = {.picture = "x.svg"};
              }),
              HasSubstr("--ranks is missing beside --svg x.svg"));
  EXPECT_THAT(refused([](PlanOptions& w) { w.job.ranks = "0"; }), HasSubstr("--ranks: '0'"));
  EXPECT_THAT(refused([](PlanOptions& w) { w.job.ranks = "9"; }),
              HasSubstr("more stages than layers: 9 for 7"));
  EXPECT_THAT(refused([](PlanOptions& w) { w.job.schedule = "1f1c"; }),
              HasSubstr("unknown schedule '1f1c' (did you mean '1f1b'?)"));
  EXPECT_THAT(refused([](PlanOptions& w) { w.job.schedule = "chimera"; }), HasSubstr("chimera"));
  EXPECT_THAT(refused([](PlanOptions& w) { w.job.device_memory = "4MiB"; }),
              HasSubstr("fits on no device"));
  EXPECT_THAT(refused([](PlanOptions& w) { w.job.schedule = "1f1b:slots=2"; }),
              HasSubstr("1f1b has no slots to choose"));
  EXPECT_THAT(refused([](PlanOptions& w) { w.job.batch = "8"; }),
              HasSubstr("a batch of 8 does not split into 6 equal micro-batches"));
  EXPECT_THAT(refused([](PlanOptions& w) { w.job.ranks_per_host = "2"; }),
              HasSubstr("--ranks-per-host 2 is about disks"));
  EXPECT_THAT(
      refused([](PlanOptions& w) { w.common.rates.rates = "disks.json"; }),
      HasSubstr("--rates disks.json is about the disks of one host, and 3 ranks may share"));
  EXPECT_THAT(refused([](PlanOptions& w) { w.job.link = "fast"; }), HasSubstr("--link: 'fast'"));
  EXPECT_THAT(refused([](PlanOptions& w) { w.common.rates.host_memory = "1GiB"; }),
              HasSubstr("--host-memory 1GiB is for what is swapped"));
  EXPECT_THAT(refused([](PlanOptions& w) { w.job.check = w.common.profile; }),
              HasSubstr("has no place beside --check"));
  EXPECT_THAT(refused([](PlanOptions& w) { w.common.profile.clear(); }),
              HasSubstr("PROFILE is missing"));
}

}  // namespace
}  // namespace spillway::cli
