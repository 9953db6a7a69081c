#include "rank_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace spillway::split {
namespace {

using profile::TraceSpan;
using runtime::RecordedTrace;
using schedule::Action;
using schedule::ActionKind;
using Facts = std::vector<std::pair<std::string, std::string>>;

constexpr Action kForward{.kind = ActionKind::kForward, .stage = 1, .micro_batch = 3};
constexpr Action kBackward{.kind = ActionKind::kBackward, .stage = 1, .micro_batch = 0};

TimePoint at(int microseconds) { return TimePoint(std::chrono::microseconds(microseconds)); }

/// A trace from 1000 µs to 2000 µs, with an operator from 1100 µs to 1150 µs.
RecordedTrace recorded() {
  RecordedTrace trace;
  trace.begin = at(1000);
  trace.end = at(2000);
  trace.trace.spans = {{profile::kComputeLane, "aten::mm", 1e-4, 5e-5, {{"operator", "0"}}},
                       {profile::kReadInLane, "weight 1", 1e-4, 5e-5, {}}};
  return trace;
}

std::vector<TraceSpan> lane_of(const RankLog& log, std::string_view lane) {
  RecordedTrace trace = recorded();
  log.write(trace);
  std::vector<TraceSpan> spans = trace.trace.spans;
  std::erase_if(spans, [&](const TraceSpan& span) { return span.lane != lane; });
  return spans;
}

std::vector<std::string> names_of(const std::vector<TraceSpan>& spans) {
  std::vector<std::string> names;
  for (const TraceSpan& span : spans) names.push_back(span.name);
  return names;
}

TEST(RankLog, ShowsMessagesAsSpansWithArrows) {
  RankLog log;
  log.add({at(1200), at(1250), 7, Bytes(4096), Rank(0), /*has_come=*/false, kBackward});
  log.add({at(1300), at(1310), 8, Bytes(16), Rank(0), /*has_come=*/true, std::nullopt});
  RecordedTrace trace = recorded();
  log.write(trace);
  const std::vector<TraceSpan> sent = lane_of(log, profile::kSendLane);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].name, "1RECV_B0");
  EXPECT_NEAR(sent[0].begin_seconds, 2e-4, 1e-12);
  EXPECT_NEAR(sent[0].seconds, 5e-5, 1e-12);
  EXPECT_EQ(sent[0].facts, (Facts{{"bytes", "4096"},
                                  {"to rank", "0"},
                                  {"stage", "1"},
                                  {"micro-batch", "0"},
                                  {"direction", "backward"}}));
  const std::vector<TraceSpan> come = lane_of(log, profile::kReceiveLane);
  ASSERT_EQ(come.size(), 1U);
  EXPECT_EQ(come[0].facts, (Facts{{"bytes", "16"}, {"from rank", "0"}}));
  const auto& arrows = trace.trace.arrows;
  ASSERT_EQ(arrows.size(), 2U);
  EXPECT_EQ(arrows[0].number, 7U);
  EXPECT_EQ(arrows[0].lane, profile::kSendLane);
  EXPECT_NEAR(arrows[0].at_seconds, 2e-4, 1e-12);
  EXPECT_FALSE(arrows[0].is_end);
  EXPECT_EQ(arrows[1].number, 8U);
  EXPECT_NEAR(arrows[1].at_seconds, 3.1e-4, 1e-12);
  EXPECT_TRUE(arrows[1].is_end);
}

TEST(RankLog, LeavesOutWhatIsNotInTheSteps) {
  RankLog log;
  log.add({at(900), at(950), 1, Bytes(1), Rank(0), false, {}});
  log.add({at(990), at(1010), 2, Bytes(1), Rank(0), false, {}});
  log.add({at(2000), at(2010), 3, Bytes(1), Rank(0), false, {}});
  log.add_operator(kForward, at(900), at(950));
  log.add_operator(kBackward, at(2100), at(2200));
  RecordedTrace trace = recorded();
  log.write(trace);
  ASSERT_EQ(trace.trace.spans.size(), 3U);
  EXPECT_EQ(trace.trace.spans[2].begin_seconds, 0.0);
  EXPECT_NEAR(trace.trace.spans[2].seconds, 1e-5, 1e-12);
  EXPECT_TRUE(trace.trace.arrows.empty());  // Its begin is before.
}

TEST(RankLog, JoinsOperatorsOfOneActionThatFollowEachOther) {
  RankLog log;
  log.add_operator(kForward, at(1000), at(1010));
  log.add_operator(kForward, at(1050), at(1150));
  log.add_operator(kBackward, at(1160), at(1200));
  log.add_operator(kForward, at(1210), at(1220));
  log.add_operator({}, at(1230), at(1240));  // Another one's.
  log.add_operator(kForward, at(1250), at(1260));
  log.add_operator(kForward, at(1400), at(1410));  // It has waited.
  const std::vector<TraceSpan> actions = lane_of(log, profile::kActionLane);
  EXPECT_EQ(names_of(actions), (std::vector<std::string>{"1F3", "1B0", "1F3", "1F3", "1F3"}));
  EXPECT_NEAR(actions[0].seconds, 1.5e-4, 1e-12);
}

TEST(RankLog, TellsOperatorsWhatTheyWereFor) {
  RankLog log;
  log.add_operator(kBackward, at(1000), at(1090));
  log.add_operator(kForward, at(1095), at(1160));
  const std::vector<TraceSpan> operators = lane_of(log, profile::kComputeLane);
  EXPECT_EQ(
      operators.at(0).facts,
      (Facts{{"operator", "0"}, {"stage", "1"}, {"micro-batch", "3"}, {"direction", "forward"}}));
  EXPECT_TRUE(lane_of(log, profile::kReadInLane).at(0).facts.empty());
}

TEST(RankLog, ForgetsTheOldest) {
  RankLog log(2);
  for (int i = 0; i < 5; ++i) {
    const TimePoint begin = at(1000 + 200 * i);
    log.add({begin,
             begin + std::chrono::microseconds(1),
             static_cast<std::uint64_t>(i),
             Bytes(1),
             Rank(0),
             false,
             {}});
    log.add_operator(kForward, begin, begin + std::chrono::microseconds(1));
  }
  RecordedTrace trace = recorded();
  log.write(trace);
  ASSERT_EQ(trace.trace.arrows.size(), 2U);
  EXPECT_EQ(trace.trace.arrows[0].number, 3U);
  EXPECT_EQ(lane_of(log, profile::kActionLane).size(), 2U);
}

}  // namespace
}  // namespace spillway::split
