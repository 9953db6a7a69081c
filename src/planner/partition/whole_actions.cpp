#include "whole_actions.h"

#include "point_sets.h"

namespace spillway::planner {
namespace {

/// With so much recomputed. What must go per micro-batch is `excess`.
double time_of(SegmentLoad load, double recomputed, double saved, double excess) {
  const double rate = load.swap_bytes_per_second;
  load.seconds += recomputed;
  const double seconds = load.busy_seconds();
  const double left = excess - saved;
  if (left <= 0.0) return seconds;
  return rate > 0.0 ? std::max(seconds, left / rate) : kNever;
}

/// Least time: recomputation takes longer, and leaves less to the link.
struct LeastTime {
  SegmentLoad load;
  double excess = 0.0;

  double value(const PointSet& set) const { return time_of(load, set.seconds, set.saved, excess); }
  /// The least over the time that other layers recompute, with what they save in it at most: where
  /// the stage and its link are busy equally long.
  double bound(const PointSet& set, const UndecidedLayers& rest) const {
    const double rate = load.swap_bytes_per_second;
    const double left = excess - set.saved;
    double more = 0.0;
    if (left > rest.saved_in(0.0) && rest.price > 0.0) {
      const double until_done = (std::min(left, rest.saved) - rest.free) / rest.price;
      const double until_even =
          (left - rest.free - rate * (load.seconds + set.seconds)) / (rate + rest.price);
      more = std::max(0.0, rate > 0.0 ? std::min(until_even, until_done) : until_done);
    }
    // Where there is no link, only what the rest cannot save at all rules it out, not rounding.
    if (rate <= 0.0) {
      if (left > rest.saved) return kNever;
      return time_of(load, set.seconds + more, left, left);
    }
    return time_of(load, set.seconds + more, set.saved + rest.saved_in(more), excess);
  }
  bool is_enough(const PointSet& set) const {
    const double left = excess - set.saved;
    if (left <= 0.0) return true;
    const double rate = load.swap_bytes_per_second;
    return rate > 0.0 && (load.seconds + set.seconds) * rate >= left;
  }
};

/// Most bytes saved in a time.
struct MostSaved {
  double slack = 0.0;

  double value(const PointSet& set) const { return set.seconds <= slack ? -set.saved : kNever; }
  double bound(const PointSet& set, const UndecidedLayers& rest) const {
    return set.seconds <= slack ? -(set.saved + rest.saved_in(slack - set.seconds)) : kNever;
  }
  bool is_enough(const PointSet& set) const { return set.seconds > slack; }
};

}  // namespace

double seconds_with(const SegmentLoad& load, const WholeActions& actions, double bytes) {
  return time_of(load, actions.recompute_seconds, actions.saved_bytes, load.excess_bytes(bytes));
}

WholeActions quickest_actions(const SegmentCosts& costs, Segment segment, double bytes,
                              double below) {
  LeastTime goal{costs.load(segment)};
  goal.excess = goal.load.excess_bytes(bytes);
  if (goal.excess <= 0.0 || goal.excess == kNever) return {};
  return PointSets(costs, segment).best(goal, below);
}

WholeActions most_saving_actions(const SegmentCosts& costs, Segment segment, double seconds) {
  return PointSets(costs, segment).best(MostSaved{seconds - costs.load(segment).seconds}, kNever);
}

}  // namespace spillway::planner
