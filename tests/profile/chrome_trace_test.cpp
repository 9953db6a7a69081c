#include "spillway/profile/chrome_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "spillway/base/error.h"
#include "support/damaged_text.h"

namespace spillway::profile {
namespace {

using nlohmann::json;

StepTrace small_trace() {
  StepTrace trace;
  trace.title = "predicted: net";
  trace.source = TraceSource::kRun;
  trace.process = 7;
  trace.spans = {{kComputeLane, "aten::mm", 0.0, 0.001, {{"shapes", "[2, 3] \"x\""}}},
                 {kReadInLane, "value 3", 0.0005, 0.002, {{"bytes", "4096"}}}};
  trace.resident_bytes = {{0.0, 4096.0}, {0.001, 0.0}};
  trace.marks = {{0.0, "step 4"}, {0.002, "end"}};
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

TEST(ChromeTrace, GivesBytesOfTransfersAsNumbers) {
  StepTrace trace = small_trace();
  const auto bytes = [&](const std::string& text) {
    trace.spans[1].facts = {{"bytes", text}};
    return events_of(json::parse(to_chrome_trace(trace)), "X")[1].at("args").at("bytes");
  };
  EXPECT_EQ(bytes("2097152"), 2097152);
  EXPECT_EQ(bytes("0"), 0);
  for (const char* text : {"", "007", "4 MiB", "-1"}) EXPECT_EQ(bytes(text), text);
}

TEST(ChromeTrace, SaysWhoWroteIt) {
  for (const auto& [source, label] :
       {std::pair{TraceSource::kRun, "run"}, std::pair{TraceSource::kPrediction, "prediction"}}) {
    StepTrace trace = small_trace();
    trace.source = source;
    const std::string text = to_chrome_trace(trace);
    EXPECT_NE(text.find(message("\"labels\":\"{}\"", label)), std::string::npos);
    EXPECT_EQ(parse_chrome_trace(text, "x").source, source);
  }
  StepTrace trace = small_trace();
  trace.source = TraceSource::kUnknown;
  EXPECT_EQ(parse_chrome_trace(to_chrome_trace(trace), "x").source, TraceSource::kUnknown);
}

TEST(ChromeTrace, WritesNamesThatItReadsAgain) {
  StepTrace trace = small_trace();
  trace.spans[0].name = "a\xff\n\"\\";
  const auto spans = events_of(json::parse(to_chrome_trace(trace)), "X");
  EXPECT_EQ(spans[0].at("name"), "a\xEF\xBF\xBD?\"\\");
}

TEST(ChromeTrace, PutsSeveralIntoOneFile) {
  const StepTrace traces[] = {StepTrace{}, small_trace()};
  const json document = json::parse(to_chrome_trace(traces));
  std::vector<int> processes;
  for (const json& event : events_of(document, "M"))
    if (event.at("name") == "process_name") processes.push_back(event.at("pid"));
  EXPECT_EQ(processes, (std::vector<int>{1, 7}));
  EXPECT_EQ(events_of(document, "i").front().at("name"), "step 4");
}

StepTrace trace_of_rank(std::uint32_t rank) {
  StepTrace trace = small_trace();
  trace.process = process_of_rank(rank, trace.source);
  const std::string_view lane = rank == 0 ? kSendLane : kReceiveLane;
  trace.spans.push_back({lane, "1RECV_F0", 0.001, 0.0005, {{"bytes", "16"}}});
  trace.arrows = {{9, lane, rank == 0 ? 0.001 : 0.0015, rank != 0}, {40 + rank, lane, 0.0, false}};
  return trace;
}

TEST(ChromeTrace, DrawsArrowsBetweenRanks) {
  std::vector<StepTrace> traces{trace_of_rank(0), trace_of_rank(1)};
  keep_whole_arrows(traces);
  const json document = json::parse(to_chrome_trace(traces));
  const auto begins = events_of(document, "s");
  const auto ends = events_of(document, "f");
  ASSERT_EQ(begins.size(), 1U);
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(begins[0].at("id"), ends[0].at("id"));
  EXPECT_EQ(begins[0].at("ts"), 1000.0);
  EXPECT_EQ(ends[0].at("ts"), 1500.0);
  EXPECT_EQ(begins[0].at("pid"), 2);
  EXPECT_EQ(ends[0].at("pid"), 4);
  const std::vector<json> spans = events_of(document, "X");
  EXPECT_EQ(begins[0].at("tid"), spans[2].at("tid"));
  EXPECT_EQ(ends[0].at("tid"), spans[5].at("tid"));
}

TEST(KeepWholeArrows, LeavesNoneOfARankAlone) {
  StepTrace alone = trace_of_rank(1);
  keep_whole_arrows({&alone, 1});
  EXPECT_TRUE(alone.arrows.empty());
}

std::string refusal(const std::string& text) {
  try {
    parse_chrome_trace(text, "run.json");
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "accepted";
}

TEST(ParseChromeTrace, GivesBackWhatWasWritten) {
  const std::string text = to_chrome_trace(small_trace());
  const StepTrace read = parse_chrome_trace(text, "run.json");
  EXPECT_EQ(to_chrome_trace(read), text);
  EXPECT_EQ(read.spans.at(1).lane, kReadInLane);
  EXPECT_EQ(read.marks.at(1).name, "end");
}

TEST(ParseChromeTrace, TakesTheTraceOfADeviceOutOfSeveral) {
  StepTrace gpu = small_trace();
  gpu.title = "cuda:0 (Card): " + gpu.title;
  gpu.process = process_of_rank(1, TraceSource::kRun);
  StepTrace other = gpu;
  other.title = "cuda:1 (Card): measured";
  other.process = process_of_rank(2, TraceSource::kRun);
  const std::string text = to_chrome_trace(std::array{small_trace(), gpu, other});
  EXPECT_EQ(to_chrome_trace(parse_chrome_trace(text, "x", "cuda:0")), to_chrome_trace(gpu));
  EXPECT_EQ(to_chrome_trace(parse_chrome_trace(text, "x", "cuda:1")), to_chrome_trace(other));
  EXPECT_EQ(parse_chrome_trace(text, "x", "cpu").process, small_trace().process);
  EXPECT_THROW(parse_chrome_trace(text, "x", "cuda:2"), ConfigError);
  EXPECT_THROW(parse_chrome_trace(text, "x"), ConfigError);
}

TEST(ParseChromeTrace, GivesBackLanesAndArrowsOfARank) {
  const std::string text = to_chrome_trace(trace_of_rank(1));
  const StepTrace read = parse_chrome_trace(text, "run.json");
  EXPECT_EQ(to_chrome_trace(read), text);
  EXPECT_FALSE(read.has_far_tier);
  ASSERT_EQ(read.arrows.size(), 2U);
  EXPECT_EQ(read.arrows[0].number, 9U);
  EXPECT_EQ(read.arrows[0].lane, kReceiveLane);
  EXPECT_TRUE(read.arrows[0].is_end);
  EXPECT_FALSE(read.arrows[1].is_end);
}

TEST(ParseChromeTrace, RefusesWhatIsNoTraceOfOneRun) {
  const StepTrace two[] = {StepTrace{}, small_trace()};
  EXPECT_EQ(refusal(to_chrome_trace(two)),
            "run.json: it holds several traces, and one is wanted (spillway run --trace writes "
            "one)");
  EXPECT_EQ(refusal("[]"),
            "run.json: the text is a list instead of an object (spillway run --trace writes one)");
  EXPECT_EQ(refusal(R"({"traceEvents": [{"ph": "B", "pid": 1}]})"),
            "run.json: it has events of another program (spillway run --trace writes one)");
  const std::string text = to_chrome_trace(small_trace());
  EXPECT_EQ(refusal(text.substr(0, text.size() / 2)).find("run.json"), 0U);
}

TEST(ParseChromeTrace, SurvivesDamage) {
  const std::string text = to_chrome_trace(small_trace());
  DamagedText damaged(20261122);
  std::size_t refused = 0;
  for (int i = 0; i < 2000; ++i) refused += refusal(damaged(text)) != "accepted" ? 1 : 0;
  EXPECT_GT(refused, 500U);
}

}  // namespace
}  // namespace spillway::profile
