#pragma once

#include <cstdint>
#include <functional>

#include "spillway/planner/partition/cut_solvers.h"

namespace spillway::partition {

/// What a random problem may have. Figures are small whole numbers, so that sums are exact.
struct ProblemShape {
  std::uint32_t layers = 7;
  std::uint32_t stages = 3;
  bool has_borders = true;  ///< Between neighbours, and over several layers.
  bool has_links = true;    ///< That take time, hidden or not.
  bool has_ties = true;     ///< And layers that stay together, and frozen ones.
  bool differ = true;       ///< Devices and what stages hold.
};

/// The same for the same seed, everywhere.
PartitionProblem random_problem(std::uint64_t seed, const ProblemShape& shape);

/// The same without limits of memory.
PartitionProblem without_limits(PartitionProblem problem);

/// Calls `see` with all cuts of so many units for so many stages, none empty.
void for_all_cuts(std::uint32_t units, std::uint32_t stages,
                  const std::function<void(const Cuts&)>& see);

/// `see` gets the costs of each of so many random problems, those of which a unit fits nowhere left
/// out, and the seed.
void for_random_costs(std::uint64_t count, const ProblemShape& shape,
                      const std::function<void(const SegmentCosts&, std::uint64_t)>& see);

}  // namespace spillway::partition
