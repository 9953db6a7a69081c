#pragma once

#include <vector>

#include "recompute_costs.h"
#include "touch_intervals.h"

namespace spillway::planner {

/// Moments of a step at which residency is looked at: twice its operator at the begin of one, and
/// one more at its end, when it still holds what it needs. Ascending; the first is 0.
using CutMoments = std::vector<std::uint32_t>;

/// A number of a cut around the endless repetition: cut i % count, in step i / count.
using CutVisit = std::uint32_t;

/// Pages of a group that cost about the same to recompute.
struct RecomputeClass {
  double pages = 0.0;
  double at_return = 0.0;  ///< Seconds per page, the least of the class.
  /// Seconds per page beside that, for pages that come back after each of the stretch's cuts. Fewer
  /// than cuts where they cannot come back later by being computed.
  std::vector<double> besides;
  std::uint32_t from = 0;  ///< The first bucket in which the latter may be spent.
};

/// A stretch of cuts at which all pages of a group are idle.
struct IdleStretch {
  CutVisit first = 0;
  std::uint32_t visits = 0;
  bool is_used = false;  ///< At its end; otherwise the pages die, and never come back.
  std::vector<RecomputeClass> classes;
};

/// Pages that live alike, as far as cuts can tell, between two writes.
struct FluidGroup {
  double pages = 0.0;
  bool has_copy = false;      ///< Nothing has to be written.
  CutVisit first_bucket = 0;  ///< In which they are written; a bucket has the number of its cut.
  std::vector<IdleStretch> stretches;
};

std::vector<FluidGroup> find_groups(const StepTape& tape, const TouchIntervals& touches,
                                    const CutMoments& cuts, std::size_t most_parents);

}  // namespace spillway::planner
