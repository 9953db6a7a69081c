#pragma once

#include <optional>
#include <string>

#include "spillway/planner/cluster/cluster.h"
#include "spillway/planner/cluster/job_simulation.h"
#include "spillway/planner/job/job_file.h"

namespace spillway::cli {

/// A plan for many ranks that works. Throws IoError that tells how to make one, what
/// `parse_job_file` and `machine_of` throw, and PlanError for what `job_fault` finds.
job::JobFile stored_job(const std::string& path);

/// Whether there is a plan for many ranks in this file, or its lists of actions: by its first
/// lines, and by the ending of its name. Not in one that cannot be read.
bool is_stored_job(const std::string& path);

/// The machine that a plan was made for, where it was made for one. Throws what `parse_cluster`
/// throws.
std::optional<cluster::Cluster> machine_of(const job::JobFile& file, const std::string& path);

/// Where that goes what its ranks swap.
cluster::SwapTarget swap_target_of(const job::JobFile& file);

/// Writes a plan with all that it was reckoned with, and the machine it is for (empty: none), or,
/// into a file that ends with .csv, its actions alone. Throws IoError.
void store_job(const job::JobPlan& plan, const partition::ModelChain& chain,
               cluster::SwapTarget swap_target, const std::string& cluster,
               const std::string& path);

/// What users are told then.
std::string stored_text(const job::JobPlan& plan, const std::string& path);

}  // namespace spillway::cli
