#include "planning/job_report.h"

#include <algorithm>
#include <cmath>

#include "planning/planning_text.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {

using planner::JobAttempt;
using planner::JobPlan;
using planner::JobRequest;
using planner::StageEstimate;

namespace {

constexpr std::size_t kLabel = 10;
constexpr std::size_t kStagesShown = 64;
constexpr std::size_t kMostLettersOfName = 44;

std::string line(std::string label, const std::string& text) {
  label.resize(kLabel, ' ');
  return label + text + "\n";
}

std::string counted(std::uint64_t count, const char* word) {
  return message("{} {}{}", count, word, count == 1 ? "" : "s");
}

std::string request_text(const JobRequest& request, const std::string& path) {
  std::string text = line("model", message("{}, {}, {} for a micro-batch", path,
                                           counted(request.chain.layers.size(), "layer"),
                                           seconds_text(work_of(request.chain))));
  text += line("job", message("{}{}, {} per step", counted(request.ranks, "rank"),
                              request.device_memory == planner::kNoLimit
                                  ? std::string(" of any size (--device-memory limits it)")
                                  : message(" of {}", request.device_memory),
                              request.micro_batches == 1
                                  ? std::string("1 micro-batch")
                                  : message("{} micro-batches", request.micro_batches)));
  const bool is_free = std::isinf(request.link.bytes_per_second);
  text += line("links",
               message("{}; {}",
                       is_free ? std::string("messages between ranks take no time (--link names a "
                                             "rate)")
                               : gb_per_s(request.link.bytes_per_second) + " between ranks",
                       request.swap_bytes_per_second > 0.0
                           ? gb_per_s(request.swap_bytes_per_second) + " to each host, either way"
                           : std::string("nothing is swapped (--link-out and --link-in name a link "
                                         "to the host)")));
  return text;
}

std::string stages_table(const FoundJob& job) {
  const JobPlan& plan = job.search.plan;
  std::vector<std::vector<std::string>> rows{{"stage", "rank", "layers", "time", "again", "swapped",
                                              "held", "before", "parameters", "begins with"}};
  for (std::size_t k = 0; k < std::min(plan.stages.size(), kStagesShown); ++k) {
    const StageEstimate& stage = plan.stages[k];
    rows.push_back(
        {message("{}", k), message("{}", plan.actions.rank_of(0, static_cast<std::uint32_t>(k))),
         message("{}-{}", stage.first_layer, stage.last_layer), seconds_text(stage.seconds),
         seconds_text(stage.recompute_seconds), to_string(stage.swapped), to_string(stage.memory),
         to_string(stage.raw_memory), to_string(stage.parameters),
         shown_text(job.request.chain.layers[stage.first_layer].name, kMostLettersOfName)});
  }
  std::string text = table_text(rows);
  if (plan.stages.size() > kStagesShown)
    text += message("and {} more; --json tells all\n", plan.stages.size() - kStagesShown);
  return text;
}

std::vector<std::string> titles() {
  return {"schedule", "partitioner", "groups", "step", "bubble", "waits", "gap", "peak"};
}

std::vector<std::string> row_of(const JobAttempt& attempt) {
  if (!attempt.is_possible())
    return {attempt.schedule,
            attempt.partitioner,
            message("{}", attempt.groups),
            "-",
            "-",
            "-",
            "-",
            "-"};
  return {attempt.schedule,
          attempt.partitioner,
          message("{}", attempt.groups),
          seconds_text(attempt.step_seconds),
          percent_text(attempt.bubble),
          seconds_text(attempt.exposed_communication_seconds),
          percent_text(attempt.gap),
          to_string(attempt.peak)};
}

/// Of each schedule the fastest of its numbers of groups, or the first refusal.
std::vector<JobAttempt> best_of_each(const std::vector<JobAttempt>& attempts) {
  std::vector<JobAttempt> best;
  for (const JobAttempt& each : attempts) {
    const auto found = std::find_if(best.begin(), best.end(), [&](const JobAttempt& other) {
      return other.schedule == each.schedule;
    });
    if (found == best.end())
      best.push_back(each);
    else if (each.is_possible() &&
             (!found->is_possible() || each.step_seconds < found->step_seconds))
      *found = each;
  }
  return best;
}

std::string tried_text(const FoundJob& job) {
  if (job.search.attempts.size() < 2) return {};
  std::vector<JobAttempt> best = best_of_each(job.search.attempts);
  std::stable_sort(best.begin(), best.end(), [](const JobAttempt& a, const JobAttempt& b) {
    if (a.is_possible() != b.is_possible()) return a.is_possible();
    return a.is_possible() && a.step_seconds < b.step_seconds;
  });
  std::vector<std::vector<std::string>> rows{titles()};
  std::string reasons;
  for (const JobAttempt& each : best) {
    rows.push_back(row_of(each));
    if (!each.is_possible()) reasons += message("  {}: {}\n", each.schedule, each.refusal);
  }
  std::string text = message("\nAll schedules that were tried, each on its best number of groups:\n"
                             "{}",
                             table_text(rows));
  return reasons.empty() ? text : text + "Why some are none:\n" + reasons;
}

std::string relief_text(const JobPlan& plan) {
  std::int64_t swaps = 0;
  std::int64_t again = 0;
  for (std::uint32_t rank = 0; rank < plan.memory.size(); ++rank) {
    swaps += count_of(plan, rank, planner::ActionKind::kSwapOut);
    again += count_of(plan, rank, planner::ActionKind::kRecompute);
  }
  return message("{} whole stashes leave in idle windows, {} are computed again", swaps, again);
}

}  // namespace

double work_of(const planner::ModelChain& chain) {
  double seconds = 0.0;
  for (const planner::ModelLayer& layer : chain.layers)
    seconds += layer.forward_seconds + layer.backward_seconds;
  return seconds;
}

std::int64_t count_of(const JobPlan& plan, std::uint32_t rank, planner::ActionKind kind) {
  const auto& list = plan.actions.ranks[rank];
  return std::count_if(list.begin(), list.end(),
                       [&](const planner::Action& action) { return action.kind == kind; });
}

double CostCuts::bubble() const {
  const double whole = worst_seconds * static_cast<double>(stages.size());
  return whole > 0.0 ? std::max(0.0, 1.0 - all_seconds / whole) : 0.0;
}

double CostCuts::gap() const {
  return bound_seconds > 0.0 ? std::max(0.0, worst_seconds / bound_seconds - 1.0) : 0.0;
}

std::string job_text(const FoundJob& job) {
  const JobPlan& plan = job.search.plan;
  const planner::Partitioner& partitioner = planner::partitioner_named(plan.partitioner);
  const planner::ScheduleGenerator& generator = planner::schedule_generator_named(plan.schedule);
  std::string text = request_text(job.request, job.path);
  text += line("schedule", message("{} ({}) on {} of {}", plan.schedule, generator.summary,
                                   counted(plan.groups, "pipeline"),
                                   counted(plan.ranks / plan.groups, "rank")));
  text += line("cuts", message("{} ({}; {})", plan.partitioner, partitioner.summary,
                               to_string(partitioner.reading)));
  text += line(
      "time", message("{} per step, {} per micro-batch on the slowest stage",
                      seconds_text(plan.step_seconds), seconds_text(plan.seconds_per_micro_batch)));
  text += line("bound", message("{}: nothing is faster on so many ranks; this is {} above it",
                                seconds_text(plan.bound_seconds), percent_text(plan.gap())));
  text += line("idle", message("{} of all ranks' time; {} at most wait for messages",
                               percent_text(plan.timing.bubble),
                               seconds_text(plan.exposed_communication_seconds())));
  text += line("peak", message("{} on the fullest rank", plan.peak()));
  if (plan.relief == planner::JobRelief::kWindows) text += line("relief", relief_text(plan));
  text += line("planned", message("in {}", seconds_text(job.search_seconds)));
  return text + "\n" + stages_table(job) + tried_text(job);
}

std::string job_comparison_text(const JobRequest& request, const std::string& path,
                                std::span<const ComparedJob> rows) {
  std::string text = request_text(request, path);
  text += line("bound", message("{}: nothing is faster on so many ranks",
                                seconds_text(planner::job_bound(request))));
  std::vector<std::vector<std::string>> table{titles()};
  table.front().push_back("planned");
  std::string reasons;
  for (const ComparedJob& row : rows) {
    table.push_back(row_of(row.attempt));
    table.back().push_back(seconds_text(row.search_seconds));
    if (!row.attempt.is_possible())
      reasons += message("  {} with {}: {}\n", row.attempt.schedule, row.attempt.partitioner,
                         row.attempt.refusal);
  }
  text += '\n';
  text += table_text(table);
  return reasons.empty() ? text : text + "\nWhy some are none:\n" + reasons;
}

std::string cost_cuts_text(std::span<const CostCuts> cuts) {
  std::vector<std::vector<std::string>> rows{
      {"partitioner", "slowest stage", "idle", "above the best", "planned", "stages"}};
  std::string reasons;
  for (const CostCuts& each : cuts) {
    if (!each.refusal.empty()) {
      reasons += message("  {}: {}\n", each.partitioner, each.refusal);
      continue;
    }
    std::string stages;
    for (const StageEstimate& stage : each.stages)
      stages += message("{}{}-{}", stages.empty() ? "" : " ", stage.first_layer, stage.last_layer);
    rows.push_back({each.partitioner, seconds_text(each.worst_seconds), percent_text(each.bubble()),
                    percent_text(each.gap()), seconds_text(each.search_seconds), stages});
  }
  return table_text(rows) + (reasons.empty() ? "" : "Why some are none:\n" + reasons);
}

}  // namespace spillway::cli
