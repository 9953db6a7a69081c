#include "spillway/profile/chrome_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace spillway::profile {
namespace {

using nlohmann::json;

StepTrace small_trace() {
  StepTrace trace;
  trace.title = "predicted: net";
  trace.process = 7;
  trace.spans = {{kComputeLane, "aten::mm", 0.0, 0.001, {{"shapes", "[2, 3] \"x\""}}},
                 {kReadInLane, "value 3", 0.0005, 0.002, {}}};
  trace.resident_bytes = {{0.0, 4096.0}, {0.001, 0.0}};
  return trace;
}

std::vector<json> events_of(const json& document, const std::string& phase) {
  std::vector<json> found;
  for (const json& event : document.at("traceEvents"))
    if (event.at("ph") == phase) found.push_back(event);
  return found;
}

TEST(ChromeTrace, GivesSpansInMicrosecondsWithTheirFacts) {
  const json document = json::parse(to_chrome_trace(small_trace()));
  const auto spans = events_of(document, "X");
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].at("name"), "aten::mm");
  EXPECT_EQ(spans[0].at("dur"), 1000.0);
  EXPECT_EQ(spans[0].at("args").at("shapes"), "[2, 3] \"x\"");
  EXPECT_EQ(spans[1].at("ts"), 500.0);
  for (const json& span : spans) EXPECT_EQ(span.at("pid"), 7);
}

TEST(ChromeTrace, NamesEveryLaneInTheSameOrder) {
  const json document = json::parse(to_chrome_trace(StepTrace{}));
  std::vector<std::string> lanes;
  for (const json& event : events_of(document, "M"))
    if (event.at("name") == "thread_name") lanes.push_back(event.at("args").at("name"));
  EXPECT_EQ(lanes, (std::vector<std::string>{"compute", "write-out", "read-in", "host copy"}));
  const auto spans = events_of(json::parse(to_chrome_trace(small_trace())), "X");
  EXPECT_EQ(spans[0].at("tid"), 1);
  EXPECT_EQ(spans[1].at("tid"), 3);
}

TEST(ChromeTrace, CountsBytes) {
  const auto counts = events_of(json::parse(to_chrome_trace(small_trace())), "C");
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0].at("name"), "resident bytes");
  EXPECT_EQ(counts[0].at("args").at("bytes"), 4096);
  EXPECT_EQ(counts[1].at("ts"), 1000.0);
}

TEST(ChromeTrace, SurvivesNamesThatAreNoText) {
  StepTrace trace = small_trace();
  trace.spans[0].name = "a\xff\n\"\\";
  const auto spans = events_of(json::parse(to_chrome_trace(trace)), "X");
  EXPECT_EQ(spans[0].at("name"), "a\xEF\xBF\xBD\n\"\\");
}

}  // namespace
}  // namespace spillway::profile
