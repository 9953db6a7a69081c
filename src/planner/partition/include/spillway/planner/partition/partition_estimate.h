#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spillway/planner/partition/cut_solvers.h"

namespace spillway::partition {

/// A layer that takes a point: an index of its `recompute`.
struct ChosenPoint {
  LayerIndex layer = 0;
  std::uint32_t point = 0;
};

/// One stage, with layers recomputed whole and stash swapped in any part. Seconds and bytes of one
/// micro-batch, except for memory.
struct StageEstimate {
  LayerIndex first_layer = 0;
  LayerIndex last_layer = 0;
  Bytes parameters;  ///< Tied weights once.
  double raw_seconds =
      0.0;  ///< Before any memory reduction: layers, and transfers that do not hide.
  double link_seconds = 0.0;
  double seconds = 0.0;  ///< Infinite where nothing makes it fit.
  double recompute_seconds = 0.0;
  Bytes swapped;  ///< Written, and read as much.
  Bytes raw_memory;
  Bytes memory;  ///< At the peak, with what is chosen.
  std::vector<ChosenPoint> recomputed;
};

struct PartitionEstimate {
  std::vector<StageEstimate> stages;
  double seconds = 0.0;        ///< Seconds of the slowest stage; infinite where one does not fit.
  double fluid_seconds = 0.0;  ///< The same, when fractions of layers may be recomputed.
  Bytes memory;                ///< Bytes of the fullest stage.
  double fluid_bytes = 0.0;    ///< Of `evaluate_memory` alone: the same with fractions.
  bool fits = false;

  /// The share of `fluid_seconds`, or of the bytes, that whole layers cost beyond fractions.
  double rounding_gap = 0.0;
  std::uint64_t point_sets = 0;  ///< Looked at for whole layers: the effort.
};

/// The least time of these cuts within the devices of their stages: the simulator of all
/// partitioners. Each stage takes the recompute points with which it is quickest, from all sets of
/// them that no other one beats in time and bytes; it is at most one step of one layer slower than
/// with fractions. From layer to layer it keeps 2,048 such sets, in stages of more than 256 layers
/// half a million over all layers (and 8 each); of more, every other one is left out. So a stage
/// looks at some million sets at most. Throws PlanError
/// for cuts that leave a stage empty or do not cover the chain.
PartitionEstimate evaluate(const SegmentCosts& costs, const Cuts& cuts);

/// The least memory of these cuts when each stage may take so many seconds per micro-batch.
PartitionEstimate evaluate_memory(const SegmentCosts& costs, const Cuts& cuts, double seconds);

/// Throws PlanError with the first cut that is wrong.
void check(const SegmentCosts& costs, const Cuts& cuts);

}  // namespace spillway::partition
