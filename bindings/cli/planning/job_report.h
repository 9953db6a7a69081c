#pragma once

#include <optional>
#include <string>

#include "planning/machine_report.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/planner/job/job_search.h"

namespace spillway::cli {

/// A plan for many ranks as it was found.
struct FoundJob {
  std::string path;  ///< Path of the profile.
  planner::JobRequest request;
  planner::JobSearch search;
  double search_seconds = 0.0;
  planner::SwapTarget swap_target = planner::SwapTarget::kHost;
  std::uint32_t ranks_per_host = 1;
  Bytes host_memory = planner::kNoLimit;  ///< Limit of each host.
  std::optional<FoundMachine> machine;
};

/// The plan as lines and a table of the stages.
std::string job_text(const FoundJob& job);

/// Actions of a kind in the action list of a rank.
std::int64_t count_of(const planner::JobPlan& plan, std::uint32_t rank, planner::ActionKind kind);

}  // namespace spillway::cli
