#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace spillway::profile {

/// Layers by number, in the order in which they should run where nothing else decides, and what
/// feeds them.
class LayerGraph {
 public:
  struct Order {
    std::vector<std::size_t> layers;
    std::optional<std::size_t> cyclic;  ///< A layer that depends on itself; then there is no order.
  };

  explicit LayerGraph(std::size_t layers) : inputs_(layers) {}

  /// False for an edge that is there already.
  bool connect(std::size_t from, std::size_t to);

  /// Each layer behind its inputs, otherwise the smallest number first.
  Order order() const;

  /// Of the layers that count, one that no edges tie to the first of them, whatever their direction
  /// and whatever lies between; nothing where there is none.
  std::optional<std::size_t> apart(const std::vector<bool>& counts) const;

  /// The layers in this order, their `inputs` by place in it and in the order of the edges.
  template <typename Layer>
  std::vector<Layer> sorted(std::vector<Layer> layers, const Order& order) const {
    std::vector<std::size_t> places(layers.size());
    std::vector<Layer> sorted;
    for (const std::size_t layer : order.layers) {
      places[layer] = sorted.size();
      for (const std::size_t input : inputs_[layer]) layers[layer].inputs.push_back(places[input]);
      sorted.push_back(std::move(layers[layer]));
    }
    return sorted;
  }

 private:
  std::vector<std::vector<std::size_t>> inputs_;         ///< Per layer, in the order of the edges.
  std::set<std::pair<std::size_t, std::size_t>> edges_;  ///< From and to.
};

}  // namespace spillway::profile
