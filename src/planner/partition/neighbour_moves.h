#pragma once

#include <functional>

#include "spillway/planner/partition/cut_solvers.h"

namespace spillway::partition {

/// Seconds of a segment after the best swaps and recomputation; where it does not fit, more than
/// any seconds, the more the less it fits, so that searches find their way out.
double reduced_score(const SegmentCosts& costs, Segment segment);
/// Returns that score on a device of so many bytes.
double reduced_score(const SegmentCosts& costs, Segment segment, double device);

/// The worst of the cuts, by `reduced_score`.
double worst_score(const SegmentCosts& costs, const Cuts& cuts);

/// Moves one unit at a time over a border of the worst stage while that makes the worse of the two
/// stages better. `score` of a segment; at most `most_moves`.
Cuts moved_by_neighbours(const SegmentCosts& costs, Cuts cuts,
                         const std::function<double(Segment)>& score, std::uint32_t most_moves);

/// The nearest cuts without an empty stage.
Cuts without_empty_stages(Cuts cuts);

}  // namespace spillway::partition
