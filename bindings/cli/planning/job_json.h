#pragma once

#include <nlohmann/json_fwd.hpp>

#include "planning/cost_report.h"
#include "planning/job_comparison.h"
#include "planning/job_report.h"

namespace spillway::cli {

/// The keys that planning_output.md describes.
nlohmann::ordered_json job_json(const FoundJob& job);
nlohmann::ordered_json compared_json(const planner::JobRequest& request,
                                     const JobComparison& compared);
nlohmann::ordered_json cost_cuts_json(const CostCuts& cuts);

}  // namespace spillway::cli
