#pragma once

#include "spillway/base/bytes.h"

namespace spillway::planner {

/// Bytes that a rank or a stage holds, by class.
struct HeldBytes {
  Bytes weights;    ///< In all versions and copies.
  Bytes gradients;  ///< Of all copies, like the states.
  Bytes optimizer;
  Bytes buffers;  ///< Other data of layers that is not trained.
  Bytes stash;    ///< Of all micro-batches in flight.
  /// The largest transient of a layer, which stages of a rank share; of a rank whose peak is an
  /// update, that of the optimizer, where it is larger.
  Bytes working;
  Bytes relayed;   ///< Tensors on their way to other stages, or for frozen layers alone.
  Bytes reserved;  ///< Of the device, for storages of no layer; once for all stages of a rank.

  Bytes all() const {
    return weights + gradients + optimizer + buffers + stash + working + relayed + reserved;
  }
};

}  // namespace spillway::planner
