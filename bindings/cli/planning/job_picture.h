#pragma once

#include <string>

#include "spillway/planner/job/job_plan.h"

namespace spillway::cli {

/// A self-contained SVG of one step: for each rank what it does when, and below it what it holds,
/// with the memory of its device. Of more than 48 ranks, some in equal distances. Replicas that
/// share ranks are told apart by shade and by the labels of `micro_batch_label`.
std::string job_picture(const planner::JobPlan& plan, const std::string& title);

}  // namespace spillway::cli
