#pragma once

#include <optional>

#include "spillway/planner/partition/cut_solvers.h"

namespace spillway::planner {

/// Seconds of a segment within its device, with layers recomputed whole; infinite where nothing
/// makes it fit.
double whole_seconds(const SegmentCosts& costs, Segment segment);

/// The cuts with the least time when layers are recomputed whole, if they are quicker than so many
/// seconds. A dynamic program over the cuts that fractions of layers leave below that time; looks
/// at whole layers only where fractions promise something better. Nothing where that would take
/// more than `most_cells` cuts, or links are shared.
std::optional<Cuts> quickest_whole_cuts(const SegmentCosts& costs, double seconds,
                                        std::uint64_t most_cells);

}  // namespace spillway::planner
