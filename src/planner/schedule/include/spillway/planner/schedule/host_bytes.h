#pragma once

#include <vector>

#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

/// Returns, for each rank, the most bytes that its host has of its stashes, counted over the action
/// list: parts that stages swap by themselves, from their forward to their input gradient, and
/// stashes that actions have out.
std::vector<Bytes> stashes_on_host(const Schedule& schedule, const std::vector<StageCosts>& stages);

/// Returns, for each rank, the bytes of weights that its host has all the time, since the action
/// list brings them in again. Those that leave for good are not there.
std::vector<Bytes> weights_on_host(const Schedule& schedule, const std::vector<StageCosts>& stages);

/// Returns the sum of both for each rank.
std::vector<Bytes> host_bytes(const Schedule& schedule, const std::vector<StageCosts>& stages);

}  // namespace spillway::planner
