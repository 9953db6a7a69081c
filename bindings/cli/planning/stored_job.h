#pragma once

#include <string>

#include "spillway/planner/job/job_file.h"

namespace spillway::cli {

/// The text of a plan for many ranks. Throws IoError that tells how to make one.
std::string stored_job_text(const std::string& path);

/// A plan that works. Throws what `parse_job_file` throws, PlanError for what `job_fault` finds.
planner::JobFile stored_job(const std::string& text, const std::string& path);

}  // namespace spillway::cli
