#include "spillway/runtime/reporting/ranks_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "spillway/base/bytes.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"

namespace spillway::runtime {
namespace {

using Row = RanksReport::Row;

constexpr double kShareToAdvise = 0.05;  // Of a rank's time: below it there is nothing to advise.
constexpr double kUneven = 1.3;          // Times as busy as ranks are on average.

double share(const RankFigures& figures, double seconds) {
  return figures.seconds > 0.0 ? seconds / figures.seconds : 0.0;
}

double busy(const Row& row) { return share(row.figures, row.figures.busy_seconds); }

double per_step(const RankFigures& figures, std::uint64_t count) {
  return static_cast<double>(count) /
         static_cast<double>(std::max<std::uint64_t>(figures.steps, 1));
}

std::string whole_percent(double share) { return message("{} %", std::lround(100.0 * share)); }

/// "8", or "0.5": as many as there are in a step on average.
std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f",
                value >= 9.95 || value == std::round(value) ? 0 : 1, value);
  return text.data();
}

std::string micro_batches_text(double count) {
  return message("{} micro-batch{}", number(count), number(count) == "1" ? "" : "es");
}

std::string stages_text(const Row& row) {
  std::string text;
  for (const std::uint32_t stage : row.stages)
    text += message("{}{}", text.empty() ? "" : ",", stage);
  return text;
}

std::string waits_text(const RankFigures& figures) {
  std::vector<std::pair<double, std::string>> reasons;
  if (figures.most_awaited != RankFigures::kNobody) {
    const double others = figures.idle_for_ranks_seconds - figures.idle_for_most_awaited_seconds;
    reasons.emplace_back(figures.idle_for_most_awaited_seconds,
                         message("rank {}", figures.most_awaited));
    reasons.emplace_back(others, "other ranks");
  }
  reasons.emplace_back(figures.idle_for_reads_seconds, "bytes that the program reads");
  reasons.emplace_back(figures.idle_for_program_seconds, "the program to come so far");
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [seconds, who] : reasons)
    if (std::lround(100.0 * share(figures, seconds)) > 0)
      text += message("{}{} for {}", text.empty() ? "" : ", ",
                      whole_percent(share(figures, seconds)), who);
  return text.empty() ? "never" : text;
}

/// Columns under their titles, two blanks apart, the last one without blanks behind.
std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::vector<std::string> lines;
  for (const auto& row : rows) {
    std::string& line = lines.emplace_back();
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] + 2 - row[i].size(), ' ');
    }
  }
  return lines;
}

double mean_busy(const RanksReport& report) {
  double sum = 0.0;
  for (const Row& row : report.rows) sum += busy(row);
  return sum / static_cast<double>(report.rows.size());
}

/// Of the rank that the program's reads cost most.
std::string reads_advice(const RanksReport& report) {
  const auto cost = [](const Row& row) {
    return share(row.figures, row.figures.idle_for_reads_seconds);
  };
  const Row& worst =
      *std::max_element(report.rows.begin(), report.rows.end(),
                        [&](const Row& a, const Row& b) { return cost(a) < cost(b); });
  if (cost(worst) < kShareToAdvise || worst.figures.most_reads == 0) return {};
  const std::string name = worst.figures.most_read_by.data();
  const double times = per_step(worst.figures, worst.figures.most_reads);
  return message("{}{}, {} a step, costs rank {} up to {} of its time: {}", name,
                 name == "aten::_local_scalar_dense" ? ", which is item()" : "",
                 number(times) == "1" ? std::string("once") : number(times) + " times",
                 &worst - report.rows.data(), whole_percent(cost(worst)),
                 times >= 1.5 ? "let the program read once a step, after its last backward"
                              : "let the program read every few steps only");
}

std::string uneven_advice(const RanksReport& report) {
  const Row& most = *std::max_element(report.rows.begin(), report.rows.end(),
                                      [](const Row& a, const Row& b) { return busy(a) < busy(b); });
  const double mean = mean_busy(report);
  if (mean <= 0.0 || busy(most) < kUneven * mean) return {};
  const double others = (mean * static_cast<double>(report.rows.size()) - busy(most)) /
                        static_cast<double>(report.rows.size() - 1);
  return message(
      "rank {} computes {} of the time and the others {}: {}", &most - report.rows.data(),
      whole_percent(busy(most)), whole_percent(others),
      most.stages.size() > 1
          ? message("stages {} take longest, and the others wait for them", stages_text(most))
          : message("stage {} takes longest, and the others wait for it (--schedule interleaved "
                    "deals more, smaller stages)",
                    stages_text(most)));
}

std::string seconds_behind_moves(const LayerMoves& moves) {
  if (moves.seconds_after)
    return message("{} behind the last move", seconds_text(*moves.seconds_after));
  return message("was to take {} behind the last move, where too few steps were left to measure it",
                 seconds_text(moves.seconds_forecast));
}

}  // namespace

std::vector<std::string> ranks_table(const RanksReport& report) {
  std::set<std::string> hosts;
  std::set<std::uint32_t> stages;
  for (const Row& row : report.rows) {
    hosts.insert(row.host);
    stages.insert(row.stages.begin(), row.stages.end());
  }
  const RankFigures& first = report.rows.front().figures;
  std::vector<std::vector<std::string>> rows = {{"rank", "host", "threads", "budget", "stages",
                                                 "parameters", "peak", "swapped", "busy",
                                                 "waited"}};
  const bool have_gpus = std::any_of(report.rows.begin(), report.rows.end(),
                                     [](const Row& row) { return row.figures.gpu_peak_bytes > 0; });
  constexpr std::ptrdiff_t kBehindPeak = 7;
  const auto insert_of_gpu = [&](std::vector<std::string>& row, std::vector<std::string> cells) {
    if (have_gpus) row.insert(row.begin() + kBehindPeak, cells.begin(), cells.end());
  };
  insert_of_gpu(rows.front(), {"GPU budget", "GPU peak", "GPU swapped"});
  for (const Row& row : report.rows) {
    const RankFigures& figures = row.figures;
    rows.push_back({message("{}", rows.size() - 1), row.host, message("{}", figures.threads),
                    message("{}", Bytes(figures.budget_bytes)), stages_text(row),
                    message("{}", Bytes(figures.parameter_bytes)),
                    message("{}", Bytes(figures.peak_bytes)),
                    message("{}", Bytes(figures.spilled_bytes)), whole_percent(busy(row)),
                    waits_text(figures)});
    const Bytes budget(figures.gpu_budget_bytes);
    insert_of_gpu(rows.back(), {budget == Bytes() ? "none" : message("{}", budget),
                                message("{}", Bytes(figures.gpu_peak_bytes)),
                                message("{}", Bytes(figures.gpu_spilled_bytes))});
  }
  std::vector<std::string> lines = aligned(rows);
  lines.insert(lines.begin(),
               message("{} on {}, {}{} in {} by {}; {} a step", counted(report.rows.size(), "rank"),
                       counted(hosts.size(), "host"),
                       report.shards == 1 ? "" : message("{} shards of ", report.shards),
                       counted(stages.size(), "stage"), counted(report.replicas, "replica"),
                       report.schedule, micro_batches_text(per_step(first, first.micro_batches))));
  const LayerMoves& moves = report.moves;
  if (moves.times > 0)
    lines.push_back(message("layers moved {}: {}, {}; the slowest stage took {} for a micro-batch, "
                            "and {}",
                            counted(moves.times, "time"), counted(moves.parameters, "parameter"),
                            Bytes(moves.bytes), seconds_text(moves.seconds_before),
                            seconds_behind_moves(moves)));
  return lines;
}

std::vector<std::string> ranks_advice(const RanksReport& report) {
  std::vector<std::string> advice;
  // Of a shard, whose ranks share micro-batches.
  const std::size_t ranks = report.rows.size() / report.shards;
  if (ranks < 2 || report.rows.front().figures.steps == 0) return advice;
  const RankFigures& first = report.rows.front().figures;
  const double idle = 1.0 - mean_busy(report);
  if (idle < kShareToAdvise) return advice;
  const double micro_batches = per_step(first, first.micro_batches);
  if (micro_batches < 1.5) {
    advice.push_back(
        message("one micro-batch per step: ranks were idle {} of the time; let the trainer "
                "accumulate gradients "
                "over {} micro-batches a step, so that ranks work on different ones at once",
                whole_percent(idle), 2 * ranks));
    return advice;
  }
  for (const std::string& one : {reads_advice(report), uneven_advice(report)})
    if (!one.empty()) advice.push_back(one);
  if (!advice.empty()) return advice;
  const double stages = static_cast<double>(ranks) / report.replicas;
  const double bubble = (stages - 1.0) / (micro_batches / report.replicas + stages - 1.0);
  if (bubble < kShareToAdvise)
    advice.push_back(
        message("ranks were idle {} of the time: --trace FILE shows when", whole_percent(idle)));
  else
    advice.push_back(
        message("ranks were idle {} of the time: with {} a step, pipelines fill and drain for {} "
                "of it; more of them make that less",
                whole_percent(idle), micro_batches_text(micro_batches), whole_percent(bubble)));
  return advice;
}

}  // namespace spillway::runtime
