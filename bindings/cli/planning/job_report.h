#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planning/machine_report.h"
#include "spillway/planner/job/job_file.h"
#include "spillway/planner/job/job_search.h"

namespace spillway::cli {

/// A plan for many ranks as it was found.
struct FoundJob {
  std::string path;  ///< Of the profile.
  planner::JobRequest request;
  planner::JobSearch search;
  double search_seconds = 0.0;
  planner::SwapTarget swap_target = planner::SwapTarget::kHost;
  std::uint32_t ranks_per_host = 1;
  Bytes host_memory = planner::kNoLimit;  ///< Of each host.
  std::optional<FoundMachine> machine;
};

/// What a plan takes on a machine whose links its ranks share.
struct MachineStep {
  double step_seconds = 0.0;
  planner::SwapTarget swap_target = planner::SwapTarget::kHost;
};

/// One row of a comparison.
struct ComparedJob {
  planner::JobAttempt attempt;
  double search_seconds = 0.0;
  std::optional<MachineStep> on_machine{};  ///< Of a plan that was run there.

  /// What rows are put in order by.
  double step_seconds() const {
    return on_machine ? on_machine->step_seconds : attempt.step_seconds;
  }
};

/// Cuts of a list of costs.
struct CostCuts {
  std::string partitioner;
  std::string refusal;  ///< Empty: the rest holds.
  std::vector<planner::StageEstimate> stages;
  double worst_seconds = 0.0;
  double all_seconds = 0.0;
  double bound_seconds = 0.0;  ///< Of the best cuts that there are.
  double search_seconds = 0.0;

  double bubble() const;  ///< Share of all stages' time that they wait for the slowest one.
  double gap() const;
};

/// The fastest row of each schedule, or its first refusal; in the order of `sort_fastest_first`.
std::vector<ComparedJob> fastest_of_each(const std::vector<ComparedJob>& rows);

/// Those that are refused last.
void sort_fastest_first(std::vector<ComparedJob>& rows);

/// What a user needs to decide, as lines and a table of the stages.
std::string job_text(const FoundJob& job);
/// All rows as a table, fastest first, and why some are none. `machine`: on which they were run;
/// empty without one.
std::string job_comparison_text(const planner::JobRequest& request, const std::string& path,
                                std::span<const ComparedJob> rows, const std::string& machine);
std::string cost_cuts_text(std::span<const CostCuts> cuts);

/// Forward and backward of a micro-batch, all layers.
double work_of(const planner::ModelChain& chain);

/// Actions of a kind in the list of a rank.
std::int64_t count_of(const planner::JobPlan& plan, std::uint32_t rank, planner::ActionKind kind);

}  // namespace spillway::cli
