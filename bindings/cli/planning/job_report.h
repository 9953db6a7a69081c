#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planning/commands.h"
#include "planning/machine_report.h"
#include "planning/report_table.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/planner/job/job_search.h"

namespace spillway::cli {

/// A plan for many ranks as it was found.
struct FoundJob {
  JobOptions options;       ///< As they were given.
  job::JobRequest request;  ///< What came of them, of the profile and of the machine.
  job::JobSearch search;
  double search_seconds = 0.0;
  cluster::SwapTarget swap_target = cluster::SwapTarget::kHost;
  std::uint32_t ranks_per_host = 1;
  Bytes host_memory = partition::kNoLimit;  ///< Limit of each host.
  std::optional<FoundMachine> machine;
};

/// The plan as lines and tables.
std::string job_text(const FoundJob& job);

/// The keys that planning_output.md describes.
nlohmann::ordered_json job_json(const FoundJob& job);

/// A self-contained SVG of one step: for each rank what it does when, and below it what it holds,
/// with the memory of its device. Of more than 64 ranks, some in equal distances. Replicas that
/// share ranks are told apart by shade and by the labels of `micro_batch_label`.
std::string job_picture(const job::JobPlan& plan, const std::string& title);

// What reports of plans for many ranks share.

/// The request as lines: the model, the job, and `links`.
std::string request_text(const job::JobRequest& request, const std::string& path,
                         const std::string& links);

/// The links of each rank. `machine`: whose they are; empty without one.
std::string links_text(const job::JobRequest& request, cluster::SwapTarget target,
                       const std::string& machine);

/// Forward and backward of a micro-batch, all layers.
double work_of(const partition::ModelChain& chain);

// Tables, which text and JSON show.

Table stage_table(const FoundJob& job);
Table rank_table(const job::JobPlan& plan);
/// Of a plan that was refused, only that.
Table attempt_table(std::span<const job::JobAttempt> attempts);

/// A row without a plan.
struct NoPlan {
  std::string schedule;
  std::string where;  ///< " with spillway", " in 2 data-parallel replicas", or nothing.
  std::string reason;
};

/// What stands below a table for plans that are none: each reason once, behind all schedules that
/// share it.
std::string reasons_text(const std::vector<NoPlan>& plans);

/// Actions of a kind in the action list of a rank.
std::uint64_t count_of(const job::JobPlan& plan, std::size_t rank, schedule::ActionKind kind);

}  // namespace spillway::cli
