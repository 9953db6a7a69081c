#pragma once

#include <vector>

#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

/// By rank, the most that its host has of its stashes, counted over the action list: parts that
/// stages swap by themselves, from their forward to their input gradient, and stashes that actions
/// have out.
std::vector<Bytes> stashes_on_host(const Schedule& schedule, const std::vector<StageCosts>& stages);

/// By rank, the weights that its host has all the time, since the action list brings them in again.
/// Those that leave for good are not there.
std::vector<Bytes> weights_on_host(const Schedule& schedule, const std::vector<StageCosts>& stages);

/// Both.
std::vector<Bytes> host_bytes(const Schedule& schedule, const std::vector<StageCosts>& stages);

}  // namespace spillway::planner
