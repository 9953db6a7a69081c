#pragma once

#include "spillway/planner/partition/partition_problem.h"

namespace spillway::partition {

/// Figures of the layers [first, end) on a stage, each from its definition: sums over layers,
/// tensors and ties, and the dual of the linear program for recomputation. Knows no units, no
/// prefix sums and no order of items.
class SlowCosts {
 public:
  SlowCosts(const PartitionProblem& problem, LayerIndex first, LayerIndex end, std::uint32_t stage);

  double seconds = 0.0;
  double link_seconds = 0.0;
  double fixed_bytes = 0.0;
  double stash_bytes = 0.0;

  double saved_bytes(double slack) const;
  /// Infinite where it takes longer anyway. `rate` of the swap link, 0 where nothing swaps.
  double least_bytes(double at_seconds, double rate) const;
  /// By bisection of the above.
  double least_seconds(double bytes, double rate) const;

 private:
  void add_layers();
  void add_borders();

  const PartitionProblem& problem_;
  const LayerIndex first_, end_;
  const std::uint32_t stage_;
  LayerIndex lead_ = 0;
};

}  // namespace spillway::partition
