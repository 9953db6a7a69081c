#pragma once

#include <iosfwd>
#include <optional>

#include "planning/commands.h"
#include "spillway/planner/cluster/cluster.h"

namespace spillway::cli {

/// `plan-job --compare`. `request` is as it was before links and memory of a machine were put in.
///
/// On one pipeline over all ranks, or on the data-parallel replicas that are named: every schedule
/// with the partitioner that is asked for, as it is best, then every partitioner with the fastest
/// of these, and with the fastest that has one stage and one copy on each rank. Where one pipeline
/// works with no schedule, on as few data-parallel replicas as do. With a machine plans are made by
/// the links that it leaves each rank, and the rows run there: what its ranks share says which is
/// fastest. Shows what it does on the terminal, and prints all rows as a table, the best with
/// data-parallel replicas last, and why some are none.
///
/// Throws ConfigError for a machine with fewer devices than ranks, and what `check(JobRequest)`
/// throws.
void compare_jobs(const JobOptions& options, job::JobRequest request,
                  const std::optional<cluster::Cluster>& machine, std::ostream& out,
                  const Clock& clock);

}  // namespace spillway::cli
