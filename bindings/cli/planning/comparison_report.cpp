#include <algorithm>

#include "planning/job_comparison.h"
#include "planning/job_tables.h"
#include "planning/machine_names.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/planner/job/job_bound.h"

namespace spillway::cli {

using planner::JobAttempt;
using planner::JobRequest;

namespace {

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

/// All rows, the best with any data-parallel replicas last.
std::vector<ComparedJob> rows_of(const JobComparison& compared) {
  std::vector<ComparedJob> rows = compared.rows;
  if (compared.best) rows.push_back(*compared.best);
  return rows;
}

std::vector<JobAttempt> attempts_of(const std::vector<ComparedJob>& rows) {
  std::vector<JobAttempt> attempts;
  for (const ComparedJob& row : rows) attempts.push_back(row.attempt);
  return attempts;
}

/// Those of the attempts, with the step on the machine behind the step by links of its own.
Columns compared_columns(const JobRequest& request, const JobComparison& compared,
                         const std::vector<ComparedJob>& rows,
                         const std::vector<JobAttempt>& attempts) {
  const auto is_best = [&](std::size_t i) { return i >= compared.rows.size(); };
  const auto shared = [&](std::size_t i) -> std::optional<Figure> {
    if (!rows[i].on_machine) return std::nullopt;
    const auto& [step_seconds, swap_target] = *rows[i].on_machine;
    return Figure{
        seconds_text(step_seconds),
        {{"step_seconds", step_seconds}, {"swaps_to", name_in(kSwapTargets, swap_target)}}};
  };
  const auto target = [&](std::size_t i) -> std::optional<Figure> {
    if (!rows[i].on_machine) return std::nullopt;
    return Figure::name(name_in(kSwapTargets, rows[i].on_machine->swap_target));
  };
  const auto bound = [&, is_best](std::size_t i) {
    return Figure::seconds(planner::job_bound(
        is_best(i) ? request : with_data_parallel(request, compared.data_parallel)));
  };
  Columns columns = attempt_columns(attempts);
  columns.insert(columns.end(), {{"shared", "machine", shared},
                                 {"swaps to", "", target},
                                 {"", "bound", bound},
                                 {"", "has_any_data_parallel",
                                  [=](auto i) {
                                    return Figure{{}, is_best(i)};
                                  }},
                                 {"planned", "search_seconds", [&](auto i) {
                                    return Figure::seconds(rows[i].search_seconds);
                                  }}});
  return columns;
}

/// What stands below a table for plans that are none.
std::string with_reasons(const std::string& reasons) {
  if (reasons.empty()) return {};
  return "Reasons of those without a plan, unless they were pruned as slower:\n" + reasons;
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
  std::string reasons;
  for (const JobAttempt& each : fastest)
    if (!each.is_possible()) reasons += message("  {}: {}\n", each.schedule, each.refusal);
  return "\nAll schedules that were tried, each on its best number of data-parallel replicas:\n" +
         table_text(attempt_columns(fastest), fastest.size(), {}, fastest.size()) +
         with_reasons(reasons);
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
  const std::vector<ComparedJob> rows = rows_of(compared);
  const std::vector<JobAttempt> attempts = attempts_of(rows);
  std::vector<std::string_view> titles{"schedule", "partitioner", "data-parallel", "micro-batches",
                                       "step"};
  if (!machine.empty()) titles.emplace_back("shared");
  titles.insert(titles.end(), {"bubble", "waits", "gap", "peak"});
  if (!machine.empty()) titles.emplace_back("swaps to");
  titles.emplace_back("planned");
  text += '\n';
  text += table_text(compared_columns(request, compared, rows, attempts), rows.size(), titles,
                     rows.size());
  std::string reasons;
  for (const JobAttempt& each : attempts)
    if (!each.is_possible())
      reasons += message("  {} with {}: {}\n", each.schedule, each.partitioner, each.refusal);
  return reasons.empty() ? text : text + '\n' + with_reasons(reasons);
}

nlohmann::ordered_json compared_json(const JobRequest& request, const JobComparison& compared) {
  const std::vector<ComparedJob> rows = rows_of(compared);
  const std::vector<JobAttempt> attempts = attempts_of(rows);
  return table_json(compared_columns(request, compared, rows, attempts), rows.size());
}

}  // namespace spillway::cli
