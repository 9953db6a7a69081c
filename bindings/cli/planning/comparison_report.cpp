#include "planning/comparison_report.h"

#include <algorithm>

#include "planning/machine_names.h"
#include "planning/planning_text.h"
#include "planning/request_text.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/job/job_bound.h"

namespace spillway::cli {

using planner::JobAttempt;
using planner::JobRequest;

namespace {

constexpr std::ptrdiff_t kColumnsUpToStep = 5;  // Of `titles`.

std::vector<std::string> titles() {
  return {"schedule", "partitioner", "data-parallel", "micro-batches", "step",
          "bubble",   "waits",       "gap",           "peak"};
}

std::vector<std::string> row_of(const JobAttempt& attempt) {
  std::vector<std::string> row{planner::schedule_text(attempt.schedule, attempt.variant),
                               attempt.partitioner, message("{}", attempt.data_parallel),
                               message("{}", attempt.micro_batches)};
  if (!attempt.is_possible()) {
    row.resize(titles().size(), "-");
    return row;
  }
  row.push_back(seconds_text(attempt.step_seconds));
  row.push_back(percent_text(attempt.bubble));
  row.push_back(seconds_text(attempt.exposed_communication_seconds));
  row.push_back(percent_text(attempt.gap));
  row.push_back(to_string(attempt.peak));
  return row;
}

/// Behind the step by links of its own, and at the end.
void add_machine_columns(const std::string& step, const std::string& target,
                         std::vector<std::string>& row) {
  row.insert(row.begin() + kColumnsUpToStep, step);
  row.push_back(target);
}

void add_machine_step(const std::optional<MachineStep>& made, std::vector<std::string>& row) {
  if (made)
    add_machine_columns(seconds_text(made->step_seconds),
                        std::string(name_in(kSwapTargets, made->swap_target)), row);
  else
    add_machine_columns("-", "-", row);
}

JobRequest with_data_parallel(JobRequest request, std::uint32_t data_parallel) {
  request.data_parallel = data_parallel;
  return request;
}

/// What the rows have in common.
std::string pipelines_text(const JobRequest& request, const JobComparison& compared) {
  const std::uint32_t ranks = request.ranks / compared.data_parallel;
  std::string text = compared.data_parallel == 1
                         ? message("one pipeline over all {}", counted(ranks, "rank"))
                         : message("{} data-parallel replicas of {}", compared.data_parallel,
                                   counted(ranks, "rank"));
  if (compared.data_parallel > 1 && compared.best) text += ", since no longer pipeline works";
  if (compared.best) text += "; the last row is the best with any number of data-parallel replicas";
  return text;
}

}  // namespace

std::string attempts_text(std::span<const JobAttempt> attempts) {
  if (attempts.size() < 2) return {};
  std::vector<JobAttempt> fastest;
  for (const std::size_t each : planner::best_of_each(attempts)) fastest.push_back(attempts[each]);
  std::stable_sort(fastest.begin(), fastest.end(), [](const JobAttempt& a, const JobAttempt& b) {
    if (a.is_possible() != b.is_possible()) return a.is_possible();
    return a.is_possible() && a.step_seconds < b.step_seconds;
  });
  std::vector<std::vector<std::string>> rows{titles()};
  std::string reasons;
  for (const JobAttempt& each : fastest) {
    rows.push_back(row_of(each));
    if (!each.is_possible()) reasons += message("  {}: {}\n", each.schedule, each.refusal);
  }
  std::string text = message(
      "\nAll schedules that were tried, each on its best number of data-parallel replicas:\n"
      "{}",
      table_text(rows));
  return reasons.empty()
             ? text
             : text + "Reasons of those without a plan, unless they were pruned as slower:\n" +
                   reasons;
}

std::string job_comparison_text(const JobRequest& request, const std::string& path,
                                const JobComparison& compared, const std::string& machine) {
  std::string text = request_text(
      request, path,
      machine.empty() ? links_text(request, machine)
                      : message("step: those that {} leaves a rank; shared: on the machine, where "
                                "ranks share them",
                                machine));
  text += line("bound", message("{}: no plan is faster on pipelines like these",
                                seconds_text(planner::job_bound(
                                    with_data_parallel(request, compared.data_parallel)))));
  text += line("compared", pipelines_text(request, compared));
  std::vector<std::vector<std::string>> table{titles()};
  if (!machine.empty()) add_machine_columns("shared", "swaps to", table.front());
  table.front().push_back("planned");
  std::string reasons;
  const auto add = [&](const ComparedJob& row) {
    table.push_back(row_of(row.attempt));
    if (!machine.empty()) add_machine_step(row.on_machine, table.back());
    table.back().push_back(seconds_text(row.search_seconds));
    if (!row.attempt.is_possible())
      reasons += message("  {} with {}: {}\n", row.attempt.schedule, row.attempt.partitioner,
                         row.attempt.refusal);
  };
  for (const ComparedJob& row : compared.rows) add(row);
  if (compared.best) add(*compared.best);
  text += '\n';
  text += table_text(table);
  return reasons.empty()
             ? text
             : text + "\nReasons of those without a plan, unless they were pruned as slower:\n" +
                   reasons;
}

}  // namespace spillway::cli
