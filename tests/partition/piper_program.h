#pragma once

#include "spillway/planner/partition/cut_solvers.h"

namespace spillway::partition {

/// The program of Piper (repository msr-fiddle/piper) for one device per stage, as its source has
/// it: layers are recomputed whole in the order of bytes per second, by the point that saves most,
/// until the stage fits; transfers in both directions are added to the stage's time. Infinite where
/// nothing makes it fit.
double piper_seconds(const SegmentCosts& costs, Segment segment);

/// Its dynamic program: the least worst stage of all cuts.
double piper_seconds(const SegmentCosts& costs);

/// The worst stage of these cuts.
double piper_seconds(const SegmentCosts& costs, const Cuts& cuts);

}  // namespace spillway::partition
