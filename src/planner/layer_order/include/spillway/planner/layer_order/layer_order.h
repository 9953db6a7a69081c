#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "spillway/base/figure_text.h"
#include "spillway/planner/partition/partition_problem.h"

namespace spillway::layer_order {

/// The layer at each place of a pipeline: a permutation in which every layer comes behind all that
/// it waits for. Empty: as the chain has them.
using LayerOrder = std::vector<partition::LayerIndex>;

struct NamedOrder {
  std::string_view name;
  LayerOrder layers;  ///< Never empty.
};

/// The chain's own order (`recorded`), and where its branches may run otherwise (`may_reorder`)
/// `depth-first` (a branch to its end before the next one), `breadth-first` (branches in step),
/// `from-the-end` (depth-first against what layers read, so branches the other way round) and
/// `narrow` (next what leaves the fewest bytes between what has run and what has not); no two
/// alike.
std::vector<NamedOrder> named_orders(const partition::ModelChain& chain);

/// Returns the same model with its layers in another order. Throws what check(chain, order) throws.
partition::ModelChain reordered(const partition::ModelChain& chain, const LayerOrder& order);

/// Throws ConfigError where an order does not name each layer once, lets a layer run before one
/// that it waits for, tears layers apart that stay together, or is not the chain's own where that
/// is the only one.
void check(const partition::ModelChain& chain, const LayerOrder& order);

/// The layer at a place.
inline partition::LayerIndex layer_at(const LayerOrder& order, partition::LayerIndex place) {
  return order.empty() ? place : order[place];
}

/// The layers at places [first, last], as runs of layers that follow each other in the chain.
std::vector<partition::LayerRange> layers_at(const LayerOrder& order, partition::LayerIndex first,
                                             partition::LayerIndex last);

/// How far the search for an order goes. In counts, so that it is the same on every machine.
struct OrderEffort {
  std::uint32_t downsets = 3'000;    ///< Sets of layers that may have run; 0: only named orders.
  std::uint64_t steps = 20'000'000;  ///< Pairs of them compared, some nanoseconds each.
};
/// The effort for a plan that is the only one to be made. It takes seconds.
inline constexpr OrderEffort kThoroughOrder{20'000, 400'000'000};

struct OrderChoice {
  std::string_view name = "recorded";  ///< Name of the order, or `downsets`.
  LayerOrder layers;                   ///< Empty: as the chain has them.
  /// Seconds per micro-batch of the slowest stage under the best cuts of this order, with layers
  /// recomputed in fractions; infinite where no cuts fit.
  double seconds = 0.0;
  double recorded_seconds = 0.0;  ///< The same of the chain's own order.
  double bound_seconds = 0.0;     ///< No order is faster.
  bool is_exact = false;          ///< `seconds` is the least of all orders, to nine digits.
  std::uint32_t downsets = 0;     ///< Looked at; 0: the search did not need any.

  /// Returns by which share this order takes longer than the best one at most; 0 where no cuts fit.
  double loss() const {
    return seconds < partition::kNever ? share_above(seconds, bound_seconds) : 0.0;
  }
};

/// The order whose best cuts have the quickest slowest stage: the named orders, then all cuts
/// between downsets, which is exact over all orders where there are few enough of these. Of equals
/// the chain's own order, then the first one. Throws what SegmentCosts throws.
OrderChoice choose_order(const partition::PartitionProblem& problem,
                         const OrderEffort& effort = {});

}  // namespace spillway::layer_order
