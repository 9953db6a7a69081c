#include "chain_units.h"

namespace spillway::planner {

std::vector<LayerIndex> first_layers_of_units(const ModelChain& chain) {
  const auto layers = static_cast<LayerIndex>(chain.layers.size());
  std::vector<int> inside(layers + 1, 0);  // Differences: groups around the cut before a layer.
  for (const LayerRange& range : chain.together) {
    ++inside[range.first + 1];
    --inside[range.last + 1];
  }
  std::vector<LayerIndex> first_layer;
  int depth = 0;
  for (LayerIndex layer = 0; layer < layers; ++layer) {
    depth += inside[layer];
    if (depth == 0) first_layer.push_back(layer);
  }
  first_layer.push_back(layers);
  return first_layer;
}

SumPair static_pair(const ModelLayer& layer, double bytes) {
  if (layer.is_frozen) return {bytes, 0.0};
  return {bytes * (layer.static_ratio - 1.0), bytes};
}

}  // namespace spillway::planner
