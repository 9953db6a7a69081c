#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/schedule/execution_plan.h"

namespace spillway::partition {

using LayerIndex = std::uint32_t;

/// A time that was not measured. `check` refuses it, so that no time is 0 by omission.
inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

/// Another way through the backward of a layer: so much longer, and so much less kept.
struct RecomputePoint {
  double seconds = kNotMeasured;  ///< Added to the backward of one micro-batch.
  Bytes stash;                    ///< Still kept of one micro-batch, from forward to backward.
};

/// One layer as measured: times and stash of one micro-batch, on a device of slowdown 1.
struct ModelLayer {
  std::string name;
  double forward_seconds = kNotMeasured;
  double backward_seconds = kNotMeasured;
  Bytes parameters;
  /// Weights, gradients and optimizer states per byte of parameters, one copy of the weights
  /// included: 4 for Adam without mixed precision, 1 where nothing is trained.
  double static_ratio = 1.0;
  Bytes buffers;  ///< There once, whatever is in flight, and not trained: running means, data.
  Bytes stash;    ///< Kept from forward to backward; no border tensor of others.
  std::vector<RecomputePoint> recompute;  ///< Any number; at most one is taken.
  Bytes working_peak;                     ///< Largest transient, which layers do not add up.
  Bytes update_peak;       ///< The same of the optimizer on its parameters, when no stash is left.
  bool is_frozen = false;  ///< One copy of the weights, no gradient, no optimizer state.
};

/// A value that layers read that lie behind its producer: a hyperedge, counted once per cut. Bytes
/// of one micro-batch. Its stage holds it as stash of the producer. Others receive it, and keep it
/// as long as their own stash where a layer reads it that does not lead frozen; else they have it
/// once, to read or to send on.
struct BorderTensor {
  LayerIndex producer = 0;
  std::vector<LayerIndex> consumers;
  Bytes bytes;
};

/// Layers that share these bytes of parameters, which each of them counts as its own, and train
/// them alike. Layers of one stage hold them once.
struct TiedWeights {
  std::vector<LayerIndex> layers;
  Bytes bytes;
};

/// Consecutive layers, with both ends.
struct LayerRange {
  LayerIndex first = 0;
  LayerIndex last = 0;
};

/// A layer that waits for another one although it reads no border tensor of it: it overwrites what
/// that one reads, or reads something too small to count.
struct LayerDependence {
  LayerIndex before = 0;
  LayerIndex after = 0;
};

/// The layers of a model in the order in which they run. Of the frozen ones that lead, backward and
/// stash do not count: no gradient goes there.
struct ModelChain {
  std::vector<ModelLayer> layers;
  std::vector<BorderTensor> borders;
  std::vector<TiedWeights> ties;
  std::vector<LayerRange> together;  ///< No cut inside any of them.
  /// Borders and dependences tell all that a layer waits for, so that branches may also run in
  /// another order (layer_order.h). Else this order is the only one.
  bool may_reorder = false;
  std::vector<LayerDependence> dependences;
  /// The step that the layers were recorded in, with the operators of each; nothing: in none.
  std::optional<schedule::ProfiledStep> step;
};

/// Throws ConfigError with the layer, the value and what to do for missing, negative or infinite
/// figures, and for borders, dependences, ties and groups that name layers that do not exist or run
/// backwards.
void check(const ModelChain& chain);

/// How many frozen layers lead. Of these neither backward nor stash counts, and none is recomputed.
LayerIndex leading_frozen_layers(const ModelChain& chain);

/// The chain of micro-batches that are so many times as large, above 0: its times, stashes, working
/// peaks and tensors are as many times as large; parameters and buffers stay.
ModelChain scaled(ModelChain chain, double factor);

}  // namespace spillway::partition
