#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <vector>

#include "spillway/pipeline/ownership/placement.h"

namespace spillway::pipeline {

/// Where the stages of a trainer are placed.
struct DrawnPlacement {
  const char* name;
  std::uint32_t stages;
  std::uint32_t pipelines;
  bool has_reverse;  ///< GEMS: every other micro-batch on the ranks in reverse order.
};
inline std::ostream& operator<<(std::ostream& out, const DrawnPlacement& placement) {
  return out << placement.name;
}

/// On 2 to 16 ranks.
std::vector<DrawnPlacement> drawn_placements();
Placement placement_of(const DrawnPlacement& drawn);
/// Stages on ranks 0, 1, …
inline Placement placement_in_order(std::uint32_t stages) {
  return placement_of({"in_order", stages, 1, false});
}

/// The same number of parameters in each stage, or one less.
std::vector<std::size_t> even_cuts(std::size_t parameters, std::uint32_t stages);

}  // namespace spillway::pipeline
