#include "spillway/runtime/reporting/ranks_report.h"

#include <gmock/gmock.h>

#include <functional>
#include <string_view>

#include "spillway/base/bytes.h"
#include "spillway/runtime/reporting/summary.h"
#include "support/golden_folder.h"
#include "support/golden_text.h"

namespace spillway::runtime {
namespace {

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

std::string shown(const RanksReport& report) {
  std::string text;
  for (const std::string& line : ranks_table(report)) text += line + "\n";
  for (const std::string& advice : ranks_advice(report)) text += "advice: " + advice + "\n";
  return text;
}

/// With so many micro-batches in ten steps.
RanksReport accumulating(double busy_of_first, double busy_of_second, std::uint64_t micro_batches) {
  RanksReport report = two_ranks(busy_of_first, busy_of_second);
  for (auto& one : report.rows) one.figures.micro_batches = micro_batches;
  return report;
}

RanksReport waiting_for_others() {
  RanksReport report = two_ranks(9.0, 5.0);
  RankFigures& second = report.rows[1].figures;
  second.idle_for_ranks_seconds = 4.0;
  second.most_awaited = 0;
  second.idle_for_most_awaited_seconds = 3.1;
  second.idle_for_program_seconds = 0.2;
  report.rows[1].stages = {1, 3};
  return report;
}

RanksReport with_a_gpu() {
  RanksReport report = two_ranks(9.0, 5.0);
  report.rows[1].figures.gpu_peak_bytes = (3_GiB).count();
  report.rows[1].figures.gpu_budget_bytes = (4_GiB).count();
  report.rows[1].figures.gpu_spilled_bytes = (5_GiB).count();
  return report;
}

RanksReport sharded() {
  RanksReport report = two_ranks(9.0, 5.0);
  report.shards = 2;
  report.rows[1].stages = {0};
  return report;
}

RanksReport moved(std::optional<double> seconds_after) {
  RanksReport report = two_ranks(9.7, 9.8);
  report.moves = {1, 3, (12_MiB).count(), 0.5, 0.25, seconds_after};
  return report;
}

RanksReport interleaved() {
  RanksReport report = two_ranks(9.0, 4.0);
  report.rows[0].stages = {0, 2};
  return report;
}

RanksReport without_tasks() {
  RanksReport report;
  report.rows.resize(2);
  return report;
}

RanksReport reading(RanksReport report, std::size_t rank, std::string_view who, std::uint64_t times,
                    double idle) {
  read(report.rows[rank].figures, who, times, idle);
  return report;
}

TEST(RanksReport, IsWhatItsFileShows) {
  GoldenText golden(golden_file("ranks_report.txt"));
  const auto show = [&](const std::string& heading, const RanksReport& report) {
    golden.add(heading, shown(report));
  };
  show("all are busy", two_ranks(9.7, 9.8));
  show("a rank for each row", waiting_for_others());
  show("shards", sharded());
  show("a GPU", with_a_gpu());
  show("layers that moved", moved(0.375));
  show("layers that moved at the end", moved(std::nullopt));
  show("no tasks", without_tasks());
  constexpr const char* kItem = "aten::_local_scalar_dense";
  show("one micro-batch per step", reading(accumulating(3.0, 2.2, 10), 0, kItem, 10, 5.0));
  show("reading in each micro-batch", reading(two_ranks(7.0, 6.0), 1, kItem, 80, 2.4));
  show("reading once a step", reading(two_ranks(7.0, 6.0), 1, "aten::equal", 10, 2.4));
  show("a stage that takes longer", two_ranks(9.0, 4.0));
  show("a stage of several that takes longer", interleaved());
  show("few micro-batches", accumulating(7.0, 7.0, 20));
  show("micro-batches enough", accumulating(7.0, 7.0, 400));

  RunStatistics run;
  run.memory.live_peak = 1_GiB;
  run.budget = 2_GiB;
  run.steps = 10;
  run.ranks = two_ranks(9.7, 9.8);
  golden.add("in the summary of a run", summary(run));
  run.ranks = two_ranks(9.0, 4.0);
  golden.add("in the summary of a run, with advice", summary(run));
}

}  // namespace
}  // namespace spillway::runtime
