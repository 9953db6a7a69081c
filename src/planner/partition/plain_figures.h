#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "spillway/base/bytes.h"

namespace spillway::planner {

/// The seconds of what is impossible.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

inline double as_double(Bytes bytes) { return static_cast<double>(bytes.count()); }

/// Rounded up, and at most what a count can hold.
inline Bytes as_bytes(double bytes) {
  constexpr double kMost = 1.8e19;
  return Bytes(static_cast<std::uint64_t>(std::ceil(std::clamp(bytes, 0.0, kMost))));
}

/// Returns the bytes that a link carries in so many seconds, which may be endless: none where there
/// is no link.
inline double carried_bytes(double seconds, double bytes_per_second) {
  return bytes_per_second > 0.0 ? seconds * bytes_per_second : 0.0;
}

}  // namespace spillway::planner
