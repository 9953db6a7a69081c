#pragma once

#include <span>
#include <vector>

#include "spillway/planner/schedule/schedule_timing.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::planner {

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

}  // namespace spillway::planner
