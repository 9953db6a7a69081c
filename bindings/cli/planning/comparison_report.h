#pragma once

#include <span>
#include <string>

#include "planning/job_comparison.h"
#include "spillway/planner/job/job_search.h"

namespace spillway::cli {

/// The best attempt of each schedule as a table, fastest first, and why some are none; nothing
/// where there is one attempt.
std::string attempts_text(std::span<const planner::JobAttempt> attempts);

/// All rows as a table, the best with data-parallel replicas last, and why some are none.
/// `machine`: on which they were run; empty without one.
std::string job_comparison_text(const planner::JobRequest& request, const std::string& path,
                                const JobComparison& compared, const std::string& machine);

}  // namespace spillway::cli
