#pragma once

#include <optional>
#include <string>

#include "planning/commands.h"
#include "planning/machine_report.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/planner/job/job_search.h"

namespace spillway::cli {

/// A plan for many ranks as it was found.
struct FoundJob {
  JobOptions options;           ///< As they were given.
  planner::JobRequest request;  ///< What came of them, of the profile and of the machine.
  planner::JobSearch search;
  double search_seconds = 0.0;
  planner::SwapTarget swap_target = planner::SwapTarget::kHost;
  std::uint32_t ranks_per_host = 1;
  Bytes host_memory = planner::kNoLimit;  ///< Limit of each host.
  std::optional<FoundMachine> machine;
};

/// The plan as lines and tables.
std::string job_text(const FoundJob& job);

/// The keys that planning_output.md describes.
nlohmann::ordered_json job_json(const FoundJob& job);

/// A self-contained SVG of one step: for each rank what it does when, and below it what it holds,
/// with the memory of its device. Of more than 48 ranks, some in equal distances. Replicas that
/// share ranks are told apart by shade and by the labels of `micro_batch_label`.
std::string job_picture(const planner::JobPlan& plan, const std::string& title);

}  // namespace spillway::cli
