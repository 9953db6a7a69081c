// Plans that somebody edited: each number of a file, changed in each way.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "even_jobs.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/job_file.h"
#include "support/golden_part.h"

namespace spillway::job {
namespace {

using nlohmann::json;
using ::testing::StartsWith;

/// Messages, sums, swaps or recomputation, a limit of memory on both sides.
JobFile busy_file(std::string_view schedule, JobMemoryReduction memory_reduction) {
  const NamedSchedule named = schedule_in(schedule);
  JobRequest request = even_job(8, 4, 8, named.generator->name);
  request.chain.step = {20, 42, {0, 1, 2, schedule::kNoLayer, 3, 4, 5, 6, 7}};
  request.variant = named.variant;
  request.update_seconds = 1.0;
  request.link = {1e-3, TransferRate(1e6)};
  request.swap_rate = TransferRate(3e7);
  request.data_parallel = 2;
  request.ranks = 8;
  request.micro_batches = request.batch = 16;
  request.device_memory = planned(request).peak() * 85 / 100;
  request.variant.memory_reduction = memory_reduction;
  request.host_memory = Bytes(1000 * kMega);
  return describe_job(planned(request), request.chain);
}

/// What is wrong, or "accepted".
std::string evaluated(const json& document) {
  return refusal([&] {
    const JobFile file = parse_job_file(document.dump(), "plan.json");
    if (const auto fault = job_fault(file)) throw PlanError("plan.json: {}", *fault);
  });
}

/// The key without places in action lists: "/stages/2/stash_bytes" as "stages.stash_bytes".
std::string key_of(const std::string& pointer) {
  std::string key;
  std::string part;
  for (const char letter : pointer + "/") {
    if (letter != '/') {
      part += letter;
      continue;
    }
    const bool is_place = part.find_first_not_of("0123456789") == std::string::npos;
    if (!is_place) key += (key.empty() ? "" : ".") + part;
    part.clear();
  }
  return key;
}

std::vector<json> changes_of(const json& value) {
  std::vector<json> changes{0, -1, 1e300, -1e300, "7", nullptr, json::array()};
  if (value.is_number_integer()) {
    changes.push_back(value.get<std::int64_t>() * 11 / 10 + 1);
    changes.push_back(std::int64_t{1} << 53);
    changes.push_back(value.get<double>() * 1.1 + 0.05);
  } else {
    changes.push_back(value.get<double>() * 1.1);
    changes.push_back(value.get<double>() * 0.9);
  }
  return changes;
}

/// Edits that may pass. No figure depends on limits that are not reached, nor on times and sizes of
/// what nobody waits for; what is recomputed, and how many operators backward has, is known of
/// the profile alone.
const std::set<std::string> kHarmless{"device_memory_bytes",
                                      "host_memory_bytes",
                                      "copies_wait_bytes",
                                      "kept_input_share",
                                      "step.operators",
                                      "stages.recomputed",
                                      "stages.recompute_points",
                                      "stages.operators_before",
                                      "stages.whole_stash_bytes",
                                      "stages.boundary_bytes",
                                      "stages.update_peak_bytes",
                                      "stages.recompute_seconds",
                                      "links.peer_link.latency_seconds",
                                      "links.peer_link.bytes_per_second",
                                      "links.host_link.latency_seconds",
                                      "links.host_link.bytes_per_second",
                                      "links.reduce_link.latency_seconds",
                                      "links.reduce_link.bytes_per_second"};

/// As plans of before were written: without the first, and without both.
TEST(EditedJobFile, MayLackWhatStagesBeginWith) {
  json document = json::parse(to_text(busy_file("1f1b", JobMemoryReduction::kStages)));
  for (json& stage : document["stages"]) stage.erase("begins_with");
  JobFile file = parse_job_file(document.dump(), "plan.json");
  for (const JobFileStage& stage : file.stages)
    EXPECT_EQ(stage.begins_with, schedule::operator_of_layer(stage.first_name));
  for (json& stage : document["stages"]) stage.erase("operators_before");
  file = parse_job_file(document.dump(), "plan.json");
  for (const JobFileStage& stage : file.stages) EXPECT_EQ(stage.begins_with, "");
  EXPECT_EQ(json::parse(to_text(file)), document);
}

TEST(EditedJobFile, IsRefusedOrMakesTheSameFigures) {
  std::set<std::string> accepted;
  std::size_t refused = 0;
  for (const auto& [schedule, memory_reduction] :
       {std::pair{"1f1b", JobMemoryReduction::kStages},
        std::pair{"gpipe", JobMemoryReduction::kIdleOffload},
        std::pair{"zb-v", JobMemoryReduction::kStages}}) {
    const json document = json::parse(to_text(busy_file(schedule, memory_reduction)));
    ASSERT_EQ(evaluated(document), "accepted");
    const json flat = document.flatten();
    for (const auto& [pointer, value] : flat.items()) {
      if (!value.is_number()) continue;
      for (const json& change : changes_of(value)) {
        if (change == value) continue;
        SCOPED_TRACE(
            message("{} {}: {} instead of {}", schedule, pointer, change.dump(), value.dump()));
        json edited = document;
        edited[json::json_pointer(pointer)] = change;
        const std::string told = evaluated(edited);
        if (told == "accepted") {
          EXPECT_TRUE(kHarmless.count(key_of(pointer)) == 1);
          accepted.insert(key_of(pointer));
          continue;
        }
        ++refused;
        EXPECT_THAT(told, StartsWith("plan.json"));
        EXPECT_EQ(told.find('\n'), std::string::npos) << told;
      }
    }
  }
  EXPECT_GT(refused, 1000U);
  EXPECT_EQ(accepted.count("device_memory_bytes"), 1U);
}

TEST(EditedJobFile, IsToldWhichFigureIsWrongAndWhatItShouldBe) {
  GoldenPart golden;
  const json document = json::parse(to_text(busy_file("1f1b", JobMemoryReduction::kStages)));
  const auto told = [&](const char* pointer, double factor) {
    json edited = document;
    json& value = edited[json::json_pointer(pointer)];
    if (value.is_number_integer())
      value = static_cast<std::int64_t>(value.get<double>() * factor);
    else
      value = value.get<double>() * factor;
    return evaluated(edited);
  };
  golden.add(told("/figures/peak_bytes/1", 0.5));
  golden.add(told("/figures/host_bytes/0", 2.0));
  golden.add(told("/figures/bubble", 1.1));
  golden.add(told("/figures/gap", 1.1));
  golden.add(told("/figures/bound_seconds", 0.9));
  golden.add(told("/stages/0/stash_bytes", 0.9));
  golden.add(told("/ranks", 2));
  golden.add(told("/micro_batches", 2));
}

TEST(EditedJobFile, SwapsOverALinkThatCarriesSomething) {
  GoldenPart golden;
  for (const auto& [schedule, memory_reduction] :
       {std::pair{"1f1b", JobMemoryReduction::kStages},
        std::pair{"gpipe", JobMemoryReduction::kIdleOffload}}) {
    json document = json::parse(to_text(busy_file(schedule, memory_reduction)));
    json& rate = document["links"]["host_link"]["bytes_per_second"];
    rate = rate.get<double>() / 1000;
    golden.add(evaluated(document));
    rate = 0;
    golden.add(evaluated(document));
  }
}

TEST(EditedJobFile, SaysWhereSwapsGo) {
  GoldenPart golden;
  json document = json::parse(to_text(busy_file("1f1b", JobMemoryReduction::kStages)));
  EXPECT_EQ(document["swaps_to"], "hosts");
  document["host_memory_bytes"] = 1;
  golden.add(evaluated(document));
  document["swaps_to"] = "disks";  // With room for all.
  EXPECT_EQ(evaluated(document), "accepted");
  EXPECT_TRUE(parse_job_file(document.dump(), "plan.json").swaps_to_disks);
  document["swaps_to"] = "cloud";
  golden.add(evaluated(document));
}

}  // namespace
}  // namespace spillway::job
