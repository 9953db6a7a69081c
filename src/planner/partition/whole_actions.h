#pragma once

#include <vector>

#include "spillway/planner/partition/partition_referee.h"

namespace spillway::planner {

/// What a stage recomputes, in whole layers.
struct WholeActions {
  double recompute_seconds = 0.0;  ///< On the stage's device.
  double saved_bytes = 0.0;        ///< Of the stash of one micro-batch.
  std::vector<ChosenPoint> points;
};

/// The set with which a segment is quickest within so many bytes, when swaps get this rate.
WholeActions quickest_actions(const SegmentCosts& costs, Segment segment, double bytes,
                              double swap_bytes_per_second);

/// The set that saves most in so many seconds.
WholeActions most_saving_actions(const SegmentCosts& costs, Segment segment, double seconds);

/// Time of a segment with these actions within so many bytes; infinite where swaps do not do.
double seconds_with(const SegmentLoad& load, const WholeActions& actions, double bytes,
                    double swap_bytes_per_second);

}  // namespace spillway::planner
