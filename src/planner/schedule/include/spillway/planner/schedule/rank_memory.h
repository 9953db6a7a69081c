#pragma once

#include <optional>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/planner/schedule/schedule_names.h"
#include "spillway/planner/schedule/schedule_timing.h"
#include "spillway/schedule/schedule_check.h"

namespace spillway::planner_schedule {

/// Counts over the list of each rank, in units of as much of the model as a rank has of it
/// (1/ranks). Stashes and weights that come or leave count as moved at once where they stand in the
/// action list; `time_schedule` knows how long it takes. Throws PlanError for an action list that
/// holds no valid sequence of actions.
std::vector<HeldCounts> rank_factors(const Schedule& schedule, const StashShares& shares = {});

/// Counts of each stage over all its copies, as cuts need them: the peak of in_flight on one rank,
/// and what each copy holds of weight versions at its own worst moment. Stages of one rank share
/// its memory, so each may hold what the rank holds in the mean of them.
std::vector<HeldCounts> stage_factors(const Schedule& schedule, const StashShares& shares = {});

/// Returns, for each rank, the most bytes that its host has of its stashes, counted over the action
/// list: parts that stages swap by themselves, from their forward to their input gradient, and
/// stashes that actions have out.
std::vector<Bytes> stashes_on_host(const Schedule& schedule, const std::vector<StageCosts>& stages);

/// Returns, for each rank, the bytes of weights that its host has all the time, since the action
/// list brings them in again. Those that leave for good are not there.
std::vector<Bytes> weights_on_host(const Schedule& schedule, const std::vector<StageCosts>& stages);

/// Returns the sum of both for each rank.
std::vector<Bytes> host_bytes(const Schedule& schedule, const std::vector<StageCosts>& stages);

/// The first action that takes a rank over its room, counted over its action list. The schedule
/// must have no other fault (`schedule::first_fault`). `room`: bytes of each rank.
std::optional<schedule::ScheduleFault> memory_fault(const Schedule& schedule,
                                                    const ScheduleCosts& costs,
                                                    const std::vector<Bytes>& room);

}  // namespace spillway::planner_schedule
