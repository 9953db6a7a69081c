#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace spillway::profile {

/// Layers by number, in the order in which they should run where nothing else decides, and what
/// feeds them.
struct LayerGraph {
  std::vector<std::vector<std::size_t>> inputs;  ///< Per layer, in the order of the edges.

  struct Order {
    std::vector<std::size_t> layers;
    std::optional<std::size_t> cyclic;  ///< A layer that depends on itself; then there is no order.
  };
  /// Each layer behind its inputs, otherwise the smallest number first.
  Order order() const;
};

}  // namespace spillway::profile
