#include "planning/stored_job.h"

#include <array>
#include <fstream>
#include <string_view>

#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/schedule/schedule_csv.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::cli {

namespace {

bool is_list_of_actions(const std::string& path) { return path.ends_with(".csv"); }

}  // namespace

std::string stored_job_text(const std::string& path) {
  return topology::text_of_file(
      path, message("spillway plan PROFILE --ranks COUNT --out {}", shell_word(path)));
}

planner::JobFile stored_job(const std::string& text, const std::string& path) {
  planner::JobFile file = planner::parse_job_file(text, path);
  if (const auto fault = planner::job_fault(file)) throw PlanError("{}: {}", path, *fault);
  machine_of(file, path);
  return file;
}

bool is_stored_job(const std::string& path) {
  std::array<char, 256> begin{};
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), begin.size());
  const std::string_view text(begin.data(), static_cast<std::size_t>(file.gcount()));
  return text.find("\"spillway-job-plan\"") != std::string_view::npos;
}

std::optional<planner::Cluster> machine_of(const planner::JobFile& file, const std::string& path) {
  if (file.cluster.empty()) return std::nullopt;
  return planner::parse_cluster(file.cluster, path + ", cluster");
}

planner::SwapTarget swap_target_of(const planner::JobFile& file) {
  return file.swaps_to_disks ? planner::SwapTarget::kDisk : planner::SwapTarget::kHost;
}

void store_job(const planner::JobPlan& plan, const planner::ModelChain& chain,
               planner::SwapTarget swap_target, const std::string& cluster,
               const std::string& path) {
  if (is_list_of_actions(path))
    return topology::write_file_at_once(path, planner::to_csv(plan.actions));
  planner::JobFile file = planner::describe_job(plan, chain);
  file.cluster = cluster;
  file.swaps_to_disks = swap_target == planner::SwapTarget::kDisk;
  topology::write_file_at_once(path, planner::to_text(file));
}

std::string stored_text(const std::string& path) {
  return message("\n{} stored in {}; check {} with: spillway plan --check {}\n",
                 is_list_of_actions(path) ? "actions" : "plan", path,
                 is_list_of_actions(path) ? "them" : "it", shell_word(path));
}

}  // namespace spillway::cli
