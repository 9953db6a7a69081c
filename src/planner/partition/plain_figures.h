#pragma once

#include <algorithm>
#include <cmath>

#include "spillway/planner/partition/partition_problem.h"

namespace spillway::partition {

inline double as_double(Bytes bytes) { return static_cast<double>(bytes.count()); }

/// Rounded up, and at most what a count can hold.
inline Bytes as_bytes(double bytes) {
  constexpr double kMost = 1.8e19;
  return Bytes(static_cast<std::uint64_t>(std::ceil(std::clamp(bytes, 0.0, kMost))));
}

}  // namespace spillway::partition
