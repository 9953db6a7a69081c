#pragma once

#include <vector>

#include "touch_intervals.h"

namespace spillway::planner {

/// Least cost of recomputing a value whose pages left without a copy in an interval.
struct RecomputeCost {
  bool is_possible = false;
  /// Seconds per page of that writer of the value which costs most. Its pages are away at least
  /// until it has run again.
  double at_return = 0.0;
  double other_writers = 0.0;  ///< The same for its other writers; they run in the interval, too.
  /// For what is freed or overwritten and has to be recomputed on the way, by `from`.
  struct Parent {
    OpIndex from = 0;  ///< It is there until this operator has run.
    double seconds_per_page = 0.0;
  };
  std::vector<Parent> parents;
  /// The last operator before which the value can be recomputed; some input has ended then.
  OpIndex return_before = kNoOp;
};

/// Costs per interval. Those in `is_counted` may be claimed together: what one replay gives to
/// several values is divided among them by their pages, so that a sum over values never counts a
/// replay twice. Parents are the latest `most_parents` operators that have to run again for an
/// interval; earlier ones are charged to nobody. bounds.md has the proof.
std::vector<RecomputeCost> recompute_costs(const StepTape& tape, const TouchIntervals& touches,
                                           const std::vector<bool>& is_counted,
                                           std::size_t most_parents);

/// The same costs, as a walk through the operators meets them, without parents: those may have come
/// back at any time before.
struct WalkCosts {
  static constexpr std::uint8_t kOnlyRead = 255;
  /// Per use: the class of costs at which the value comes back for it, or kOnlyRead.
  std::vector<std::uint8_t> class_before_use;
  std::vector<OpIndex> return_before_use;  ///< Per use: see RecomputeCost.
  std::vector<double> class_seconds;       ///< Per page, ascending; the least of each class.
  /// Per use, and per value for its birth: it may leave afterwards without a copy.
  std::vector<bool> drops_after_use;
  std::vector<bool> drops_after_birth;
};

WalkCosts walk_costs(const StepTape& tape, const TouchIntervals& touches,
                     const std::vector<RecomputeCost>& costs);

}  // namespace spillway::planner
