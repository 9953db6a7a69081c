#pragma once

#include <cstdint>
#include <vector>

#include "spillway/planner/schedule/schedule_names.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::planner {

/// How many versions of its parameters each copy holds: those that a forward has used and its
/// backward still needs, and the newest. A step makes a version in place when nobody needs the one
/// before any more.
struct VersionCount {
  std::vector<std::uint32_t> peaks;  ///< By copy.
  /// Per rank, over all its copies: the change before each of its actions, and one behind the last.
  std::vector<std::vector<std::int32_t>> changes;
};

VersionCount count_versions(const Schedule& schedule, const WeightCopies& copies);

}  // namespace spillway::planner
