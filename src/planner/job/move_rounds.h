#pragma once

#include <optional>
#include <vector>

#include "spillway/planner/job/job_rebalance.h"
#include "spillway/planner/job/job_request.h"
#include "spillway/planner/partition/cut_solvers.h"
#include "spillway/planner/schedule/schedule_names.h"

namespace spillway::planner {

/// Moves of layers from cuts to others in one flush. In each round every border goes as far towards
/// its place as the layers that its two stages have let it, and as the receiving ranks have room:
/// all that arrives in a round must fit beside what a rank has when the round begins, since nobody
/// says when others leave. At a flush ranks hold what stays between steps and no stashes. Sets all
/// of a choice but its stages and step. `actions` are the action lists with which the job goes on.
/// Nothing where some layers never find room.
std::optional<RebalanceChoice> move_rounds(const JobRequest& request, const SegmentCosts& costs,
                                           const Schedule& actions, const Cuts& now,
                                           const Cuts& target);

}  // namespace spillway::planner
