#include "spillway/runtime/reporting/ranks_report.h"

#include <gmock/gmock.h>

#include <string_view>

#include "spillway/base/bytes.h"
#include "spillway/runtime/reporting/summary.h"

namespace spillway::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

/// Of ten seconds.
RanksReport::Row row(std::string host, std::uint32_t stage, double busy) {
  RanksReport::Row row{std::move(host), {stage}, {}};
  row.figures.threads = 2;
  row.figures.budget_bytes = (2_GiB).count();
  row.figures.parameter_bytes = (300_MiB).count();
  row.figures.peak_bytes = (1_GiB).count();
  row.figures.micro_batches = 80;
  row.figures.steps = 10;
  row.figures.seconds = 10.0;
  row.figures.busy_seconds = busy;
  return row;
}

RanksReport two_ranks(double busy_of_first, double busy_of_second) {
  RanksReport report;
  report.schedule = "1f1b";
  report.rows = {row("north", 0, busy_of_first), row("south", 1, busy_of_second)};
  return report;
}

void read(RankFigures& figures, std::string_view who, std::uint64_t times, double idle) {
  who.copy(figures.most_read_by.data(), figures.most_read_by.size() - 1);
  figures.reads = figures.most_reads = times;
  figures.idle_for_reads_seconds = idle;
}

TEST(RanksReport, NamesShards) {
  RanksReport report = two_ranks(9.0, 5.0);
  report.shards = 2;
  report.rows[1].stages = {0};
  EXPECT_THAT(ranks_table(report).front(),
              StartsWith("2 ranks on 2 hosts, 2 shards of 1 stage in 1 replica by 1f1b;"));
}

TEST(RanksReport, TellsOfGpusWhereThereAreSome) {
  RanksReport report = two_ranks(9.0, 5.0);
  EXPECT_THAT(ranks_table(report)[1], Not(HasSubstr("GPU")));
  report.rows[1].figures.gpu_peak_bytes = (3_GiB).count();
  report.rows[1].figures.gpu_budget_bytes = (4_GiB).count();
  report.rows[1].figures.gpu_spilled_bytes = (5_GiB).count();
  EXPECT_THAT(ranks_table(report)[1],
              HasSubstr("peak      GPU budget  GPU peak  GPU swapped  swapped"));
  EXPECT_THAT(ranks_table(report)[2], HasSubstr("1.00 GiB  none        0 B       0 B"));
  EXPECT_THAT(ranks_table(report)[3], HasSubstr("1.00 GiB  4.00 GiB    3.00 GiB  5.00 GiB"));
}

TEST(RanksReport, HasARowForEachRank) {
  RanksReport report = two_ranks(9.0, 5.0);
  RankFigures& second = report.rows[1].figures;
  second.idle_for_ranks_seconds = 4.0;
  second.most_awaited = 0;
  second.idle_for_most_awaited_seconds = 3.1;
  second.idle_for_program_seconds = 0.2;
  report.rows[1].stages = {1, 3};
  EXPECT_THAT(
      ranks_table(report),
      ElementsAre("2 ranks on 2 hosts, 3 stages in 1 replica by 1f1b; 8 micro-batches a step",
                  "rank  host   threads  budget    stages  parameters  peak      swapped  busy  "
                  "waited",
                  "0     north  2        2.00 GiB  0       300 MiB     1.00 GiB  0 B      90 %  "
                  "never",
                  "1     south  2        2.00 GiB  1,3     300 MiB     1.00 GiB  0 B      50 %  "
                  "31 % for rank 0, 9 % for other ranks, 2 % for the program to come so far"));
}

TEST(RanksReport, TellsOfLayersThatHaveMoved) {
  RanksReport report = two_ranks(9.0, 5.0);
  EXPECT_THAT(ranks_table(report).back(), StartsWith("1 "));
  report.moves = {1, 3, (12_MiB).count(), 0.5, 0.25, std::nullopt};
  EXPECT_EQ(ranks_table(report).back(),
            "layers moved 1 time: 3 parameters, 12.0 MiB; the slowest stage took 500 ms for a "
            "micro-batch, and was to take 250 ms behind the last move, where too few steps were "
            "left to measure it");
  report.moves.seconds_after = 0.375;
  EXPECT_EQ(ranks_table(report).back(),
            "layers moved 1 time: 3 parameters, 12.0 MiB; the slowest stage took 500 ms for a "
            "micro-batch, and 375 ms behind the last move");
}

TEST(RanksReport, OfARunWithoutTasksHasNoShares) {
  RanksReport report;
  report.rows.resize(2);
  EXPECT_THAT(ranks_table(report).back(), HasSubstr("0 %"));
  EXPECT_THAT(ranks_advice(report), IsEmpty());
}

TEST(RanksReport, AdvisesNothingWhereAllAreBusy) {
  EXPECT_THAT(ranks_advice(two_ranks(9.7, 9.8)), IsEmpty());
}

TEST(RanksReport, AdvisesToAccumulate) {
  RanksReport report = two_ranks(3.0, 2.2);
  for (auto& one : report.rows) one.figures.micro_batches = 10;
  read(report.rows[0].figures, "aten::_local_scalar_dense", 10, 5.0);
  EXPECT_THAT(ranks_advice(report),
              ElementsAre(AllOf(StartsWith("one micro-batch per step: ranks were idle 74 % of"),
                                HasSubstr("over 4 micro-batches"))));
  EXPECT_THAT(ranks_table(report).front(), HasSubstr("; 1 micro-batch a step"));
}

TEST(RanksReport, TellsWhatReadingCosts) {
  RanksReport report = two_ranks(7.0, 6.0);
  read(report.rows[1].figures, "aten::_local_scalar_dense", 80, 2.4);
  EXPECT_THAT(
      ranks_advice(report),
      ElementsAre("aten::_local_scalar_dense, which is item(), 8 times a step, costs rank 1 "
                  "up to 24 % of its time: let the program read once a step, after its "
                  "last backward"));
  read(report.rows[1].figures, "aten::equal", 10, 2.4);
  EXPECT_THAT(ranks_advice(report).front(), HasSubstr("every few steps"));
}

TEST(RanksReport, NamesAStageThatTakesLonger) {
  RanksReport report = two_ranks(9.0, 4.0);
  EXPECT_THAT(ranks_advice(report),
              ElementsAre(AllOf(StartsWith("rank 0 computes 90 % of the time and the others 40 %: "
                                           "stage 0 takes longest"),
                                HasSubstr("--schedule interleaved"))));
  report.rows[0].stages = {0, 2};
  EXPECT_THAT(ranks_advice(report).front(), Not(HasSubstr("--schedule")));
}

TEST(RanksReport, AdvisesMoreMicroBatches) {
  RanksReport report = two_ranks(7.0, 7.0);
  for (auto& one : report.rows) one.figures.micro_batches = 20;
  EXPECT_THAT(
      ranks_advice(report),
      ElementsAre("ranks were idle 30 % of the time: with 2 micro-batches a step, pipelines "
                  "fill and drain for 33 % of it; more of them make that less"));
}

TEST(RanksReport, DoesNotBlameThePipelineForWhatItDoesNotTake) {
  RanksReport report = two_ranks(7.0, 7.0);
  for (auto& one : report.rows) one.figures.micro_batches = 400;
  EXPECT_THAT(ranks_advice(report),
              ElementsAre("ranks were idle 30 % of the time: --trace FILE shows when"));
}

TEST(Summary, TellsOfRanks) {
  RunStatistics s;
  s.memory.live_peak = 1_GiB;
  s.budget = 2_GiB;
  s.steps = 10;
  s.ranks = two_ranks(9.7, 9.8);
  EXPECT_THAT(summary(s), AllOf(HasSubstr("\n[spillway] ranks    2 ranks on 2 hosts"),
                                HasSubstr("\n[spillway]          1     south"),
                                HasSubstr("\n[spillway] advice   nothing; everything fitted\n")));
  s.ranks = two_ranks(9.0, 4.0);
  EXPECT_THAT(summary(s), AllOf(HasSubstr("\n[spillway] advice   rank 0 computes"),
                                Not(HasSubstr("nothing; everything"))));
}

}  // namespace
}  // namespace spillway::runtime
