#pragma once

#include <cstdint>
#include <string>

#include "spillway/planner/job/job_request.h"

namespace spillway::cli {

/// A line of a report, behind its label.
std::string line(std::string label, const std::string& text);

/// The request as lines: the model, the job, and `links`.
std::string request_text(const planner::JobRequest& request, const std::string& path,
                         const std::string& links);

/// The links of each rank. `machine`: whose they are; empty without one.
std::string links_text(const planner::JobRequest& request, const std::string& machine);

/// Forward and backward of a micro-batch, all layers.
double work_of(const planner::ModelChain& chain);

}  // namespace spillway::cli
