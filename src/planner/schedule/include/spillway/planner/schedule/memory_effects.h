#pragma once

#include <vector>

#include "spillway/planner/schedule/schedule_timing.h"

namespace spillway::planner {

/// Effect of one action on the bytes that its rank holds.
struct MemoryEffect {
  /// The change when the action list comes to the action; below 0 for weights that leave for free.
  double at_start = 0.0;
  double at_end = 0.0;          ///< When its compute or its copy is over; never above 0.
  bool waits_for_room = false;  ///< While stashes of its rank leave and `at_start` has no room.
};

/// Effects of all action lists.
struct MemoryEffects {
  std::vector<double> at_begin;                    ///< By rank: parameters and what goes with them.
  std::vector<std::vector<MemoryEffect>> actions;  ///< By rank and position in its action list.
};

/// Returns what `time_schedule` counts under a limit of memory, for whoever runs the action lists
/// in another way. It depends on the order in each action list alone. `costs` are of these stages.
///
/// Throws PlanError for a stash that is not where an action needs it, with that action.
MemoryEffects memory_effects(const Schedule& schedule, const ScheduleCosts& costs);

}  // namespace spillway::planner
