#pragma once

#include <span>
#include <vector>

#include "spillway/planner/schedule/schedule_timing.h"
#include "weight_copies.h"

namespace spillway::planner {

/// Where the parameters are when a list begins, and what a rank holds of them then.
struct ParameterPlaces {
  ParameterPlaces(const Schedule& schedule, const WeightCopies& copies,
                  std::span<const StageCosts> stages);

  /// By copy. One whose first move brings it (from the host, from its owner) is not there.
  std::vector<bool> is_resident;
  /// By rank: weights in all the versions that the list needs, gradients, and optimizer states of
  /// what it steps.
  std::vector<double> bytes;
};

}  // namespace spillway::planner
