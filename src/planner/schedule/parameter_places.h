#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spillway/planner/schedule/schedule_names.h"
#include "spillway/planner/schedule/schedule_timing.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::planner_schedule {

/// How many versions of its parameters each copy holds: those that a forward has used and its
/// backward still needs, and the newest. A step makes a version in place when nobody needs the one
/// before any more.
struct VersionCount {
  std::vector<std::uint32_t> peaks;  ///< By copy.
  /// Per rank, over all its copies: the change before each of its actions, and one behind the last.
  std::vector<std::vector<std::int32_t>> changes;
};

VersionCount count_versions(const Schedule& schedule, const WeightCopies& copies);

/// The places of the parameters when an action list begins, and what a rank holds of them then.
struct ParameterPlaces {
  ParameterPlaces(const Schedule& schedule, const WeightCopies& copies,
                  std::span<const StageCosts> stages);

  std::vector<bool> is_resident;  ///< By copy, as `resident_at_start`.
  /// Bytes that each rank holds: weights in all the versions that the action list needs, gradients,
  /// and optimizer states of what it steps.
  std::vector<double> bytes;
  std::vector<double> gradients, optimizer_states;  ///< Bytes of these, by rank.
};

}  // namespace spillway::planner_schedule
