#include "planning/stored_job.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string_view>

#include "output_files.h"
#include "planning/commands.h"
#include "planning/report_table.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/file_format.h"
#include "spillway/base/shown_text.h"
#include "spillway/schedule/schedule_check.h"
#include "spillway/schedule/schedule_csv.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

namespace {

bool is_action_csv(const std::string& path) { return ending_of(path) == ".csv"; }

/// Whose action lists are in a file of actions.
std::string readers_text(const job::JobPlan& plan) {
  if (!schedule::for_pytorch(plan.actions))
    return " (with actions that PyTorch's pipelining does not have, and refuses)";
  if (plan.data_parallel == 1) return " (as PyTorch's pipelining reads them; it updates by itself)";
  return message(
      " (of one of {} pipelines, as PyTorch's pipelining reads them; it sums and updates "
      "by itself)",
      plan.data_parallel);
}

/// What writes such a file.
std::string maker_of(const std::string& path) {
  return message("spillway plan-job PROFILE --ranks COUNT --out {}", shell_word(path));
}

std::string text_of(const std::string& path) {
  return topology::text_of_file(path, maker_of(path));
}

[[noreturn]] void refuse(const std::string& path, const std::string& fault) {
  throw PlanError("{}: {}", path,
                  with_next_step(fault, message("make it again with: {}", maker_of(path))));
}

job::JobFile job_in(const std::string& text, const std::string& path) {
  if (is_action_csv(path))
    throw ConfigError(
        "{} has lists of actions alone, without memory and time (store the plan under "
        "a name that ends in .json: spillway plan-job PROFILE --ranks COUNT --out {})",
        path, shell_word(std::filesystem::path(path).replace_extension(".json").string()));
  job::JobFile file = job::parse_job_file(text, path);
  if (const auto fault = job::job_fault(file)) refuse(path, *fault);
  machine_of(file, path);
  return file;
}

/// What is told of a plan that passed.
struct CheckedPlan {
  schedule::Schedule actions;
  std::optional<job::JobFile> file;
};

CheckedPlan checked(const std::string& path) {
  const std::string text = text_of(path);
  const auto first = text.find_first_not_of(" \t\r\n");
  CheckedPlan plan;
  const bool is_json =
      path.ends_with(".json") || (first != std::string::npos && text[first] == '{');
  if (!is_json) {
    plan.actions = schedule::read_schedule_csv(text, path);
    // Without a command that makes the file again: lists are often the user's own.
    if (const auto fault = schedule::first_fault(plan.actions))
      throw PlanError("{}: {} (mend the lists)", path, to_string(*fault));
    return plan;
  }
  plan.file = job_in(text, path);
  plan.actions = plan.file->actions;
  return plan;
}

}  // namespace

job::JobFile stored_job(const std::string& path) { return job_in(text_of(path), path); }

bool is_stored_job(const std::string& path) {
  if (is_action_csv(path)) return true;
  std::array<char, 256> begin{};
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), begin.size());
  const std::string_view text(begin.data(), static_cast<std::size_t>(file.gcount()));
  return text.find(message("\"{}\"", kJobPlanFormat.name)) != std::string_view::npos;
}

std::optional<cluster::Cluster> machine_of(const job::JobFile& file, const std::string& path) {
  if (file.cluster.empty()) return std::nullopt;
  return cluster::parse_cluster(file.cluster, path + ", cluster");
}

cluster::SwapTarget swap_target_of(const job::JobFile& file) {
  return file.swaps_to_disks ? cluster::SwapTarget::kDisk : cluster::SwapTarget::kHost;
}

void store_job(const job::JobPlan& plan, const partition::ModelChain& chain,
               cluster::SwapTarget swap_target, const std::string& cluster,
               const std::string& path) {
  if (is_action_csv(path))
    return topology::write_file_at_once(
        path, schedule::to_csv(schedule::for_pytorch(plan.actions).value_or(plan.actions)));
  job::JobFile file = job::describe_job(plan, chain);
  file.cluster = cluster;
  file.swaps_to_disks = swap_target == cluster::SwapTarget::kDisk;
  topology::write_file_at_once(path, job::to_text(file));
}

std::string stored_text(const job::JobPlan& plan, const std::string& path) {
  const bool is_action_csv_path = is_action_csv(path);
  return message("\n{} stored in {}{}; check {} with: spillway check {}\n",
                 is_action_csv_path ? "actions" : "plan", path,
                 is_action_csv_path ? readers_text(plan) : "", is_action_csv_path ? "them" : "it",
                 shell_word(path));
}

void check_plan(const CheckOptions& options, std::ostream& out, const Clock& /*clock*/) {
  const std::string& path = options.plan;
  const CheckedPlan plan = checked(path);
  std::uint64_t actions = 0;
  for (const auto& list : plan.actions.ranks) actions += list.size();
  if (options.json) {
    nlohmann::ordered_json json = {{"path", path},
                                   {"ranks", plan.actions.rank_count()},
                                   {"stages", plan.actions.stages},
                                   {"micro_batches", plan.actions.all_micro_batches()},
                                   {"actions", actions},
                                   {"knows_memory", plan.file.has_value()}};
    if (plan.file) json["step_seconds"] = plan.file->step_seconds;
    out << json_text(json);
    return;
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
                   plan.file->device_memory == partition::kNoLimit
                       ? std::string("memory has no limit in it")
                       : message("every rank stays within {}", plan.file->device_memory),
                   seconds_text(plan.file->step_seconds));
}

}  // namespace spillway::cli
