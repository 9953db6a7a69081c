#include "spillway/runtime/reporting/run_statistics.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "spillway/base/error.h"
#include "statistics_fields.h"
#include "support/documented_keys.h"
#include "support/file_text.h"
#include "support/temporary_directory.h"

namespace spillway::runtime {
namespace {

TEST(RunStatistics, HaveTheKeysThatScriptsReadWithTheirTypes) {
  const auto json = nlohmann::json::parse(to_json(RunStatistics{}));
  for (const char* key : {"spillway_version", "libtorch_version", "device", "mapper",
                          "dispatch_key", "store", "not_reported"})
    EXPECT_TRUE(json.at(key).is_string()) << key;
  for (const char* key :
       {"budget_bytes", "peak_bytes", "needed_bytes", "peak_rss_bytes", "steps", "spilled_bytes",
        "fetched_bytes", "disk_written_bytes", "recorded_peak_bytes", "refused_drops", "deviations",
        "ops", "trap_count"})
    EXPECT_TRUE(json.at(key).is_number_unsigned()) << key;
  for (const char* key : {"step_seconds_median", "planned_step_seconds", "bound_step_seconds",
                          "stall_seconds", "intercept_seconds", "disk_busy_seconds"})
    EXPECT_TRUE(json.at(key).is_number_float()) << key;
  EXPECT_TRUE(json.at("directories").is_array());
  EXPECT_TRUE(json.at("rank").is_null());
  EXPECT_TRUE(json.at("ranks").is_null());
  EXPECT_TRUE(json.at("given_plan").is_null());
}

TEST(RunStatistics, HaveTheDocumentedKeysAndNoOthers) {
  RunStatistics statistics;
  statistics.given_plan = RunStatistics::GivenPlan{};
  statistics.ranks.emplace().rows.emplace_back();
  statistics.stalls.emplace_back();
  statistics.learned.stalls.emplace_back();
  const auto json = nlohmann::json::parse(to_json(statistics));
  const auto page = documented(SPILLWAY_TEST_STATISTICS);
  Keys keys;
  for (const auto& [key, meaning] : page) keys.insert(key);
  EXPECT_EQ(keys_of(json), keys);
  for (const char* key : {"ranks", "given_plan", "stalls", "value_stalls"})
    EXPECT_EQ(keys_within(json.at(key)), keys_in(page.at(key).text)) << key;
}

TEST(RunStatistics, AreDocumentedByTheTableThatTheyAreMadeOf) {
  const std::string page = file_text(SPILLWAY_TEST_STATISTICS);
  EXPECT_NE(page.find("\n" + statistics_table() + "\n"), std::string::npos)
      << "replace the table of src/runtime/reporting/statistics.md by:\n"
      << statistics_table();
}

TEST(RunStatistics, HaveKeysThatTellTheirUnits) {
  for (const StatisticsField& field : statistics_fields()) {
    EXPECT_EQ(field.key.ends_with("_bytes"), field.unit == "bytes") << field.key;
    if (field.key.ends_with("_seconds")) {
      EXPECT_EQ(field.unit, "s") << field.key;
    }
  }
}

TEST(RunStatistics, ComeOutWithTheirValues) {
  RunStatistics statistics;
  statistics.budget = 4_GiB;
  statistics.rank = "3";
  statistics.refusal = {RefusalCause::kUnreadable, "wrong bytes"};
  statistics.memory.fetch_wait = std::chrono::seconds(1);
  statistics.memory.room_wait = std::chrono::milliseconds(500);
  statistics.memory.fault_wait = std::chrono::milliseconds(250);
  statistics.directories = {"/a", "/b"};
  statistics.given_plan = RunStatistics::GivenPlan{};
  statistics.given_plan->file = "net.plan";
  statistics.given_plan->steps = 7;
  const auto json = nlohmann::json::parse(to_json(statistics));
  EXPECT_EQ(json.at("given_plan").at("file"), "net.plan");
  EXPECT_EQ(json.at("given_plan").at("followed_steps"), 7);
  EXPECT_EQ(json.at("budget_bytes"), 4294967296u);
  EXPECT_EQ(json.at("rank"), "3");
  EXPECT_EQ(json.at("refusal"), "wrong bytes");
  EXPECT_EQ(json.at("refusal_cause"), "unreadable");
  EXPECT_EQ(json.at("stall_seconds"), 1.75);
  EXPECT_EQ(json.at("directories").size(), 2u);
}

TEST(RunStatistics, HaveAnObjectForEachDeviceWithoutWhatIsAboutTheProcess) {
  RunStatistics statistics;
  RunStatistics& there = statistics.devices.emplace_back();
  there.device = "cuda:1";
  there.device_name = "Fast 16";
  there.device_memory = 16_GiB;
  there.budget = 2_GiB;
  there.memory.store.host.peak = 1_GiB;
  const auto json = nlohmann::json::parse(to_json(statistics));
  ASSERT_EQ(json.at("devices").size(), 1u);
  const auto& device = json.at("devices").at(0);
  EXPECT_EQ(json.at("device"), "cpu");
  EXPECT_EQ(device.at("device"), "cuda:1");
  EXPECT_EQ(device.at("device_name"), "Fast 16");
  EXPECT_EQ(device.at("device_memory_bytes"), (16_GiB).count());
  EXPECT_EQ(device.at("budget_bytes"), (2_GiB).count());
  EXPECT_EQ(device.at("host_tier_peak_bytes"), (1_GiB).count());
  // The page names what is left out.
  const Keys missing = keys_in(documented(SPILLWAY_TEST_STATISTICS).at("devices").text);
  Keys all = keys_of(device);
  for (const std::string& key : missing) EXPECT_TRUE(all.insert(key).second) << key;
  EXPECT_EQ(all, keys_of(json));
}

TEST(RunStatistics, TellWhichValuesWereWaitedFor) {
  RunStatistics statistics;
  statistics.learned.stalls = {{"activation 31", profile::StorageClass::kActivation, 64_MiB,
                                "aten::relu", 12, std::chrono::milliseconds(250),
                                std::chrono::milliseconds(500)}};
  const auto stall = nlohmann::json::parse(to_json(statistics)).at("value_stalls").at(0);
  EXPECT_EQ(stall.at("value"), "activation 31");
  EXPECT_EQ(stall.at("bytes"), 67108864u);
  EXPECT_EQ(stall.at("made_by"), "aten::relu");
  EXPECT_EQ(stall.at("times"), 12u);
  EXPECT_EQ(stall.at("fetch_wait_seconds"), 0.25);
  EXPECT_EQ(stall.at("write_wait_seconds"), 0.5);
}

TEST(RunStatistics, SurviveNamesThatAreNoText) {
  RunStatistics statistics;
  statistics.program = "train\xff";
  EXPECT_TRUE(nlohmann::json::accept(to_json(statistics)));
}

TEST(RunStatistics, ReplaceAnOlderFile) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/run.json";
  std::ofstream(path) << "older, and longer than nothing";
  write_statistics(path, RunStatistics{});
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file).at("format"), "spillway run statistics");
}

TEST(RunStatistics, SayWhereTheyCannotBeWritten) {
  EXPECT_THROW(write_statistics("/no/such/folder/run.json", RunStatistics{}), IoError);
}

}  // namespace
}  // namespace spillway::runtime
