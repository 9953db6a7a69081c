#pragma once

#include <algorithm>
#include <vector>

#include "plain_figures.h"
#include "spillway/planner/partition/partition_estimate.h"

namespace spillway::partition {

/// The sets of points that a search may still look at. They are counted and not timed, so that the
/// same problem gets the same plan with the same C library.
struct Effort {
  std::uint64_t left = 0;

  void spend(std::uint64_t sets) { left -= std::min(left, sets); }
  bool is_spent() const { return left == 0; }
};

/// What a stage recomputes, in whole layers.
struct WholeActions {
  double recompute_seconds = 0.0;  ///< On the stage's device.
  double saved_bytes = 0.0;        ///< Of the stash of one micro-batch.
  std::vector<ChosenPoint> points;
  std::uint64_t sets = 0;  ///< Looked at.
};

/// The set with which a segment is quickest within so many bytes. One that takes `below` seconds or
/// more need not be the quickest.
///
/// Begins with the best fractions rounded up or down, so that it is at most one step of one layer
/// slower than these, and goes on with all sets that no other one beats and that may still be
/// quicker. Keeps 2,048 of them from layer to layer, in segments of more than 256 layers with
/// points half a million over all layers (at least 8 each); of more, every other one is left out.
WholeActions quickest_actions(const SegmentCosts& costs, Segment segment, double bytes,
                              double below = kNever);

/// The set that saves most in so many seconds, found like that.
WholeActions most_saving_actions(const SegmentCosts& costs, Segment segment, double seconds);

/// Time of a segment with these actions within so many bytes; infinite where swaps do not do.
double seconds_with(const SegmentLoad& load, const WholeActions& actions, double bytes);

}  // namespace spillway::partition
