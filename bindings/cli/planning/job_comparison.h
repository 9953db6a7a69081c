#pragma once

#include <optional>
#include <vector>

#include "planning/job_report.h"
#include "spillway/base/clock.h"
#include "spillway/planner/cluster/cluster.h"

namespace spillway::cli {

/// Every schedule with the partitioner that is asked for, on its best number of groups, then every
/// partitioner with the fastest of these; fastest first. With a machine, groups are chosen by the
/// links that it leaves each rank, and the rows run there: what its ranks share says which is
/// fastest. Shows what it does on the terminal.
///
/// Throws ConfigError for a machine with fewer devices than ranks, and what `try_choices` throws.
std::vector<ComparedJob> compared_jobs(const planner::JobRequest& request,
                                       const std::optional<planner::Cluster>& machine,
                                       const Clock& clock);

}  // namespace spillway::cli
