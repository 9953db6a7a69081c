#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "spillway/planner/partition/model_chain.h"

namespace spillway::layer_order {

/// A border tensor that other units than its own read.
struct UnitTensor {
  std::uint32_t producer = 0;
  std::vector<std::uint32_t> readers;  ///< Behind the producer, ascending, each once.
  double bytes = 0.0;
};

/// A tensor that a unit reads, and whether it keeps it for backward.
struct UnitInput {
  std::uint32_t tensor = 0;
  bool is_kept = false;
};

/// Which units of a chain wait for which. A unit is a layer, or layers that stay together; units
/// count in the order of the chain, so all edges go to larger numbers. Of leading frozen layers the
/// order stays, as which layers lead decides what backward costs: what is behind waits for them,
/// and frozen layers behind for the first trained one.
struct UnitGraph {
  explicit UnitGraph(const partition::ModelChain& chain);

  std::uint32_t units() const { return static_cast<std::uint32_t>(inputs.size()); }
  /// Each unit waits for the one before.
  bool has_one_order() const;
  /// The layers of units in this order.
  std::vector<partition::LayerIndex> layers_of(const std::vector<std::uint32_t>& order) const;

  std::vector<partition::LayerIndex> first_layer;   ///< By unit, and behind the last one.
  std::vector<std::vector<std::uint32_t>> inputs;   ///< By unit: what it waits for, ascending.
  std::vector<std::vector<std::uint32_t>> readers;  ///< By unit: what waits for it, ascending.
  std::vector<UnitTensor> tensors;
  std::vector<std::vector<std::uint32_t>> made;  ///< By unit: tensors.
  std::vector<std::vector<UnitInput>> read;      ///< By unit.
  partition::LayerIndex lead = 0;                ///< Layers that lead frozen.

 private:
  void add_tensors(const partition::ModelChain& chain);
  void add_edges(const partition::ModelChain& chain);
  void keep_lead(const partition::ModelChain& chain);

  std::vector<std::uint32_t> unit_of_layer_;
};

/// Units by place.
struct UnitOrder {
  std::string_view name;
  std::vector<std::uint32_t> units;
};

/// Orders in which each unit comes behind its inputs, the recorded one first, no two alike:
///
/// - `depth-first`: a branch to its end before the next one begins,
/// - `breadth-first`: branches in step,
/// - `from-the-end`: depth-first against the edges: branches the other way round, and what is read
///   late just before that,
/// - `narrow`: next what leaves the fewest bytes between what has run and what has not.
std::vector<UnitOrder> unit_orders(const UnitGraph& graph);

}  // namespace spillway::layer_order
