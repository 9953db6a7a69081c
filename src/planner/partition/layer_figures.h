#pragma once

#include <vector>

#include "ranked_sums.h"
#include "spillway/planner/partition/model_chain.h"

namespace spillway::partition {

/// The first layer of each unit (layers that stay together are one, others one each), and the
/// number of layers behind the last one.
std::vector<LayerIndex> first_layers_of_units(const ModelChain& chain);

/// Bytes of a layer's parameters as static ones: those that do not depend on versions of the
/// weights, those of each version.
SumPair static_pair(const ModelLayer& layer, double bytes);

/// What layers and units add up to, in the time and bytes of one micro-batch.
struct UnitLoad {
  double seconds = 0.0;    ///< Forward and backward, on a device of slowdown 1.
  double fixed = 0.0;      ///< Static bytes that do not depend on the versions, of one copy.
  double versioned = 0.0;  ///< Static bytes of each version of the weights.
  double buffers = 0.0;    ///< That nobody has twice.
  double stash = 0.0;

  UnitLoad& operator+=(const UnitLoad& other);
  /// No gradient reaches layers that lead frozen, so they have neither backward nor stash.
  void add(const ModelLayer& layer, bool leads_frozen);
};

/// Steps from the layer as it is to its points on the lower convex hull of (seconds, stash), most
/// bytes per second first: `a` are seconds, `b` the bytes saved. Fractions of them are the best
/// that fractions of points can do.
std::vector<SumPair> recompute_items(const ModelLayer& layer);

/// The points that no other one beats in both, by seconds, the layer as it is among them: seconds
/// in `a`, bytes saved in `b`.
std::vector<SumPair> useful_points(const ModelLayer& layer);

/// Those of them that lie on the lower convex hull, behind (0, 0).
std::vector<SumPair> hull_of(const std::vector<SumPair>& useful);

/// Bytes saved per second of such an item; infinite for what takes no time.
double density_of(const SumPair& item);

/// Sums of such items, most bytes per second first, of equals in their own order.
RankedSums sums_by_density(const std::vector<SumPair>& items);

}  // namespace spillway::partition
