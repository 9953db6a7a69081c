#include "trace_exchange.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "job_ranks.h"
#include "support/golden_part.h"

namespace spillway::split {
namespace {

using pipeline::Job;
using pipeline::JobRanks;
using runtime::RanksTrace;
using runtime::RecordedTrace;
using std::chrono::milliseconds;
using transport::Transport;

/// Of a host that was started at another time.
class HostClock final : public Clock {
 public:
  HostClock(const Clock& clock, Duration ahead) : clock_(clock), ahead_(ahead) {}
  TimePoint now() const override { return clock_.now() + ahead_; }

 private:
  const Clock& clock_;
  Duration ahead_;
};

constexpr Duration kAhead[] = {Duration(), std::chrono::hours(-30), std::chrono::hours(700)};

/// A step that takes one second from `begin` on. Rank 0 sends a message to each other one, which
/// has come half a second after.
RecordedTrace recorded(std::uint32_t rank, TimePoint begin) {
  RecordedTrace made;
  made.begin = begin;
  made.end = begin + std::chrono::seconds(1);
  made.has_whole_step = true;
  made.summary = "step 1";
  made.trace.source = profile::TraceSource::kRun;
  made.trace.process = profile::process_of_rank(rank, made.trace.source);
  made.trace.title = message("rank {}", rank);
  const bool sends = rank == 0;
  const std::string_view lane = sends ? profile::kSendLane : profile::kReceiveLane;
  for (std::uint64_t to = 1; to <= 2; ++to) {
    if (!sends && to != rank) continue;
    made.trace.spans.push_back({lane, "value", sends ? 0.0 : 0.5, 0.25, {}});
    made.trace.arrows.push_back({to, lane, sends ? 0.0 : 0.5, !sends});
  }
  made.trace.marks = {{0.0, "step 1"}};
  made.trace.resident_bytes = {{0.0, 8.0}};
  return made;
}

class TraceExchange : public ::testing::Test {
 protected:
  /// What the first rank gets. All steps begin at once.
  RanksTrace gathered(const std::function<void(std::uint32_t, RecordedTrace&)>& change) {
    JobRanks ranks({.ranks = 3, .most_delay = milliseconds(1), .sends_wait = true});
    const TimePoint begin = ranks.ranks().clock().now();
    RanksTrace first;
    EXPECT_EQ(ranks.run([&](Transport& transport, Job& job) {
      const std::uint32_t rank = transport.rank().value();
      const HostClock clock(ranks.ranks().clock(), kAhead[rank]);
      RecordedTrace mine = recorded(rank, begin + kAhead[rank]);
      change(rank, mine);
      const auto name_of = [](Rank one) { return message("rank {}", one.value()); };
      const std::string summary = mine.summary;
      TracesOfRanks all = traces_of({std::move(mine)}, name_of(transport.rank()));
      gather_traces(transport, job, all, name_of, clock);
      if (rank == 0)
        first = joined(std::move(all), summary, 3);
      else
        EXPECT_TRUE(all.traces.empty());
      job.end();
    }),
              "");
    return first;
  }
};

/// It follows from how late messages come.
void mask_accuracy(GoldenPart& golden) {
  golden.mask(std::regex("agree to [0-9.]+ \\S+s"), "agree to TIME");
}

TEST_F(TraceExchange, SetsTheClocksOfHostsAgainstEachOther) {
  const RanksTrace all = gathered([](std::uint32_t, RecordedTrace&) {});
  ASSERT_EQ(all.traces.size(), 3U);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const profile::StepTrace& trace = all.traces[rank];
    EXPECT_EQ(trace.title, message("rank {}", rank));
    EXPECT_EQ(trace.process, 2 * rank + 2);
    // A message takes a millisecond at most.
    EXPECT_NEAR(trace.marks.at(0).at_seconds, 0.0, 2e-3);
    EXPECT_NEAR(trace.resident_bytes.at(0).at_seconds, 0.0, 2e-3);
    EXPECT_NEAR(trace.spans.at(0).begin_seconds, rank == 0 ? 0.0 : 0.5, 2e-3);
    EXPECT_EQ(trace.arrows.size(), rank == 0 ? 2U : 1U);
    EXPECT_NEAR(trace.arrows.at(0).at_seconds, rank == 0 ? 0.0 : 0.5, 2e-3);
  }
  GoldenPart golden;
  mask_accuracy(golden);
  golden.add(all.summary);
}

TEST_F(TraceExchange, LeavesOutARankWithoutAWholeStep) {
  const RanksTrace all =
      gathered([](std::uint32_t rank, RecordedTrace& mine) { mine.has_whole_step = rank != 1; });
  ASSERT_EQ(all.traces.size(), 2U);
  EXPECT_EQ(all.traces[1].title, "rank 2");
  ASSERT_EQ(all.traces[0].arrows.size(), 1U);
  EXPECT_EQ(all.traces[0].arrows[0].number, 2U);
  GoldenPart golden;
  mask_accuracy(golden);
  golden.add(all.summary);
}

TEST_F(TraceExchange, CountsARankOnceThatHasAGpu) {
  const TimePoint begin{};
  RecordedTrace gpu = recorded(3, begin + std::chrono::seconds(1));
  const RanksTrace all = joined(traces_of({recorded(0, begin), gpu}, "rank 0"), "step 1", 1);
  ASSERT_EQ(all.traces.size(), 2U);
  EXPECT_EQ(all.traces[1].marks.at(0).at_seconds, 1.0);
  GoldenPart().add(all.summary);
}

TEST_F(TraceExchange, SaysWhatCannotBeRead) {
  const RanksTrace all = gathered([](std::uint32_t rank, RecordedTrace& mine) {
    if (rank == 2) mine.trace.spans.at(0).begin_seconds = -1.0;
  });
  EXPECT_EQ(all.traces.size(), 2U);
  GoldenPart golden;
  mask_accuracy(golden);
  golden.add(all.summary);
}

}  // namespace
}  // namespace spillway::split
