#include "occupation.h"

#include <gtest/gtest.h>

#include <string>

namespace spillway::split {
namespace {

using pipeline::TaskId;
using runtime::RankFigures;

class OccupationTest : public ::testing::Test {
 protected:
  static TimePoint at(int second) { return TimePoint(std::chrono::seconds(second)); }
  /// A task that is computed from one second to another.
  void compute(std::uint64_t task, int from, int until) {
    occupation_.begin(TaskId(task), at(from));
    occupation_.end(at(until));
  }
  RankFigures figures() const {
    RankFigures figures;
    occupation_.write(figures);
    return figures;
  }

  Occupation occupation_{3};
};

TEST_F(OccupationTest, BeginsWithTheFirstTask) {
  EXPECT_EQ(figures().seconds, 0.0);
  EXPECT_EQ(figures().most_awaited, RankFigures::kNobody);
  occupation_.found_nothing(TaskId(0));
  compute(0, 10, 12);
  compute(1, 12, 15);
  EXPECT_EQ(figures().seconds, 5.0);
  EXPECT_EQ(figures().busy_seconds, 5.0);
  EXPECT_EQ(figures().idle_for_program_seconds, 0.0);
}

TEST_F(OccupationTest, WaitsForTheRankWhoseMessageEndedItsIdleTime) {
  compute(0, 0, 1);
  occupation_.found_nothing(TaskId(5));
  occupation_.message_ended(Rank(1));
  occupation_.found_nothing(TaskId(5));
  occupation_.message_ended(Rank(2));
  compute(1, 4, 5);
  occupation_.found_nothing(TaskId(5));
  occupation_.message_ended(Rank(1));
  compute(2, 7, 8);
  EXPECT_EQ(figures().idle_for_ranks_seconds, 5.0);
  EXPECT_EQ(figures().most_awaited, 2u);
  EXPECT_EQ(figures().idle_for_most_awaited_seconds, 3.0);
}

TEST_F(OccupationTest, WaitsForTheProgramWhereTheNextTaskWasNotThere) {
  compute(0, 0, 1);
  occupation_.found_nothing(TaskId(1));
  occupation_.message_ended(Rank(1));
  occupation_.found_nothing(TaskId(2));
  compute(1, 3, 4);
  EXPECT_EQ(figures().idle_for_program_seconds, 2.0);
  EXPECT_EQ(figures().idle_for_ranks_seconds, 0.0);
}

TEST_F(OccupationTest, WaitsForReadsWhereTheProgramWaitedMeanwhile) {
  compute(0, 0, 1);
  occupation_.found_nothing(TaskId(1));
  occupation_.message_ended(Rank(1));
  occupation_.program_has_waited("aten::item", std::chrono::seconds(1));
  compute(1, 3, 4);
  occupation_.found_nothing(TaskId(2));
  compute(2, 5, 6);
  EXPECT_EQ(figures().idle_for_reads_seconds, 2.0);
  EXPECT_EQ(figures().idle_for_program_seconds, 1.0);
}

TEST_F(OccupationTest, IsNotIdleWhileTasksAreThere) {
  compute(0, 0, 1);
  compute(1, 2, 3);
  const RankFigures told = figures();
  EXPECT_EQ(told.seconds, 3.0);
  EXPECT_EQ(told.busy_seconds, 2.0);
  EXPECT_EQ(
      told.idle_for_ranks_seconds + told.idle_for_reads_seconds + told.idle_for_program_seconds,
      0.0);
}

TEST_F(OccupationTest, NamesWhoReadLongest) {
  const std::string longer(100, 'x');
  occupation_.program_has_waited("aten::equal", std::chrono::seconds(1));
  occupation_.program_has_waited("aten::equal", std::chrono::seconds(1));
  occupation_.program_has_waited(longer, std::chrono::seconds(3));
  EXPECT_EQ(figures().reads, 3u);
  EXPECT_EQ(figures().reads_seconds, 5.0);
  EXPECT_EQ(figures().most_reads, 1u);
  EXPECT_EQ(figures().most_read_by.data(), std::string(63, 'x'));
}

}  // namespace
}  // namespace spillway::split
