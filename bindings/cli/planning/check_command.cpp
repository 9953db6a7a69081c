#include "planning/commands.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "exit_codes.h"
#include "planning/plan_report.h"
#include "planning/stored_job.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/schedule/schedule_check.h"
#include "spillway/schedule/schedule_csv.h"

namespace spillway::cli {

using nlohmann::ordered_json;

namespace {

/// What is told of a plan that passed.
struct CheckedPlan {
  planner::Schedule actions;
  std::optional<planner::JobFile> file;
};

CheckedPlan checked(const std::string& path) {
  const std::string text = stored_job_text(path);
  const auto first = text.find_first_not_of(" \t\r\n");
  CheckedPlan plan;
  const bool is_json =
      path.ends_with(".json") || (first != std::string::npos && text[first] == '{');
  if (!is_json) {
    plan.actions = schedule::read_schedule_csv(text, path);
    if (const auto fault = schedule::first_fault(plan.actions))
      throw PlanError("{}: {}", path, to_string(*fault));
    return plan;
  }
  plan.file = stored_job(text, path);
  plan.actions = plan.file->actions;
  return plan;
}

}  // namespace

int check_plan(const CheckOptions& options, std::ostream& out) {
  const std::string& path = options.plan;
  const CheckedPlan plan = checked(path);
  std::uint64_t actions = 0;
  for (const auto& list : plan.actions.ranks) actions += list.size();
  if (options.json) {
    ordered_json json = {{"path", path},
                         {"ranks", plan.actions.rank_count()},
                         {"stages", plan.actions.stages},
                         {"micro_batches", plan.actions.all_micro_batches()},
                         {"actions", actions},
                         {"knows_memory", plan.file.has_value()}};
    if (plan.file) json["step_seconds"] = plan.file->step_seconds;
    out << json_text(json);
    return kDone;
  }
  out << message("{}: {} of {}, {} and {}: nothing is missing, "
                 "both sides of each message are in one order, and no deadlock even if every send "
                 "waits for its receive\n",
                 path, counted(actions, "action"), counted(plan.actions.rank_count(), "rank"),
                 counted(plan.actions.stages, "stage"),
                 counted(plan.actions.all_micro_batches(), "micro-batch"));
  if (!plan.file)
    out << "it says nothing of memory and time; plans that `spillway plan-job --out` wrote do\n";
  else
    out << message("{}; a step takes {}\n",
                   plan.file->device_memory == planner::kNoLimit
                       ? std::string("memory has no limit in it")
                       : message("every rank stays within {}", plan.file->device_memory),
                   seconds_text(plan.file->step_seconds));
  return kDone;
}

}  // namespace spillway::cli
