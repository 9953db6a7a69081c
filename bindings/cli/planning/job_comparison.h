#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/planner/cluster/cluster.h"
#include "spillway/planner/cluster/job_simulation.h"
#include "spillway/planner/job/job_search.h"

namespace spillway::cli {

/// Step time of a plan on a machine whose links its ranks share.
struct MachineStep {
  double step_seconds = 0.0;
  planner::SwapTarget swap_target = planner::SwapTarget::kHost;
};

/// One row of a comparison.
struct ComparedJob {
  planner::JobAttempt attempt;
  double search_seconds = 0.0;
  std::optional<MachineStep> on_machine{};  ///< Step of a plan that was simulated there.

  /// What rows are put in order by.
  double step_seconds() const {
    return on_machine ? on_machine->step_seconds : attempt.step_seconds;
  }
};

struct JobComparison {
  std::uint32_t data_parallel = 1;  ///< Data-parallel replicas of all rows.
  std::vector<ComparedJob> rows;    ///< Fastest first, those that are refused last.
  std::optional<ComparedJob>
      best{};  ///< Of any number of data-parallel replicas, where none is named.
};

/// On one pipeline over all ranks, or on the data-parallel replicas that are named: every schedule
/// with the partitioner that is asked for, as it is best, then every partitioner with the fastest
/// of these, and with the fastest that has one stage and one copy on each rank. Where one pipeline
/// works with no schedule, on as few data-parallel replicas as do. With a machine plans are made by
/// the links that it leaves each rank, and the rows run there: what its ranks share says which is
/// fastest. Shows what it does on the terminal.
///
/// Throws ConfigError for a machine with fewer devices than ranks, and what `check(JobRequest)`
/// throws.
JobComparison compared_jobs(const planner::JobRequest& request,
                            const std::optional<planner::Cluster>& machine, const Clock& clock);

/// The best attempt of each schedule as a table, fastest first, and why some are none; nothing
/// where there is one attempt.
std::string attempts_text(std::span<const planner::JobAttempt> attempts);

/// All rows as a table, the best with data-parallel replicas last, and why some are none.
/// `machine`: on which they were run; empty without one.
std::string job_comparison_text(const planner::JobRequest& request, const std::string& path,
                                const JobComparison& compared, const std::string& machine);
/// An array of objects with the keys that planning_output.md describes.
nlohmann::ordered_json compared_json(const planner::JobRequest& request,
                                     const JobComparison& compared);

}  // namespace spillway::cli
