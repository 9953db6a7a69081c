#pragma once

#include <span>

#include "planning/job_report.h"
#include "planning/report_table.h"

namespace spillway::cli {

// What reports of plans for many ranks share.

/// The request as lines: the model, the job, and `links`.
std::string request_text(const planner::JobRequest& request, const std::string& path,
                         const std::string& links);

/// The links of each rank. `machine`: whose they are; empty without one.
std::string links_text(const planner::JobRequest& request, const std::string& machine);

/// Forward and backward of a micro-batch, all layers.
double work_of(const planner::ModelChain& chain);

// Tables, which text and JSON show. They refer to what they are made of.

Columns stage_columns(const FoundJob& job);
Columns rank_columns(const planner::JobPlan& plan);
/// Of a plan that was refused, only that.
Columns attempt_columns(std::span<const planner::JobAttempt> attempts);

/// Actions of a kind in the action list of a rank.
std::uint64_t count_of(const planner::JobPlan& plan, std::size_t rank, planner::ActionKind kind);

}  // namespace spillway::cli
