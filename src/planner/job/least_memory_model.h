#pragma once

#include <optional>

#include "spillway/planner/job/job_request.h"
#include "spillway/planner/partition/partition_estimate.h"
#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner {

/// A model cut into stages, with what each does about its memory.
struct CutModel {
  SegmentCosts costs;
  PartitionEstimate estimate;
};

/// These cuts, or else those with the least memory on the fullest stage, when stages swap and
/// recompute all they can however long it takes, and devices have no end. Throws as problem_for and
/// SegmentCosts where something else than memory is in the way.
CutModel least_memory_model(const JobRequest& request, const Schedule& schedule,
                            const std::optional<Cuts>& cuts);

}  // namespace spillway::planner
