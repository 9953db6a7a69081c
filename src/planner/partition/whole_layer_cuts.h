#pragma once

#include <optional>

#include "whole_actions.h"

namespace spillway::partition {

/// Seconds of a segment within its device, with layers recomputed whole; infinite where nothing
/// makes it fit, or takes less than `below`, or the effort is spent.
double whole_seconds(const SegmentCosts& costs, Segment segment, double below, Effort& effort);

/// Returns the seconds of the worst stage of these cuts.
double whole_seconds(const SegmentCosts& costs, const Cuts& cuts, double below, Effort& effort);

/// The cuts with the least time when layers are recomputed whole, if they are quicker than so many
/// seconds. A dynamic program over the cuts that fractions of layers leave below that time; looks
/// at whole layers only where fractions promise something better. Nothing where the effort is spent
/// before its end (a segment counts as ten sets).
std::optional<Cuts> fastest_whole_layer_cuts(const SegmentCosts& costs, double seconds,
                                             Effort& effort);

}  // namespace spillway::partition
