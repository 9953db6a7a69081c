#include "order/unit_graph.h"

#include <algorithm>

#include "chain_units.h"

namespace spillway::planner {
namespace {

void sort_once(std::vector<std::uint32_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace

UnitGraph::UnitGraph(const ModelChain& chain)
    : first_layer(first_layers_of_units(chain)), lead(leading_frozen_layers(chain)) {
  const std::size_t count = first_layer.size() - 1;
  for (std::uint32_t unit = 0; unit < count; ++unit)
    unit_of_layer_.resize(first_layer[unit + 1], unit);
  inputs.resize(count);
  readers.resize(count);
  made.resize(count);
  read.resize(count);
  add_tensors(chain);
  add_edges(chain);
  keep_lead(chain);
  for (std::uint32_t unit = 0; unit < count; ++unit) {
    sort_once(inputs[unit]);
    for (const std::uint32_t input : inputs[unit]) readers[input].push_back(unit);
  }
}

bool UnitGraph::has_one_order() const {
  for (std::uint32_t unit = 1; unit < units(); ++unit)
    if (inputs[unit].empty() || inputs[unit].back() != unit - 1) return false;
  return true;
}

std::vector<LayerIndex> UnitGraph::layers_of(const std::vector<std::uint32_t>& order) const {
  std::vector<LayerIndex> layers;
  for (const std::uint32_t unit : order)
    for (LayerIndex i = first_layer[unit]; i < first_layer[unit + 1]; ++i) layers.push_back(i);
  return layers;
}

void UnitGraph::add_tensors(const ModelChain& chain) {
  for (const BorderTensor& border : chain.borders) {
    UnitTensor tensor{unit_of_layer_[border.producer], {}, 0.0};
    tensor.bytes = static_cast<double>(border.bytes.count());
    std::vector<std::uint32_t> keepers;
    for (const LayerIndex consumer : border.consumers) {
      const std::uint32_t unit = unit_of_layer_[consumer];
      if (unit == tensor.producer) continue;
      tensor.readers.push_back(unit);
      if (consumer >= lead) keepers.push_back(unit);
    }
    if (tensor.readers.empty()) continue;
    sort_once(tensor.readers);
    sort_once(keepers);
    const auto index = static_cast<std::uint32_t>(tensors.size());
    made[tensor.producer].push_back(index);
    for (const std::uint32_t reader : tensor.readers) {
      const bool is_kept = std::binary_search(keepers.begin(), keepers.end(), reader);
      read[reader].push_back({index, is_kept});
      inputs[reader].push_back(tensor.producer);
    }
    tensors.push_back(std::move(tensor));
  }
}

void UnitGraph::add_edges(const ModelChain& chain) {
  for (const LayerDependence& each : chain.dependences) {
    const std::uint32_t before = unit_of_layer_[each.before];
    const std::uint32_t after = unit_of_layer_[each.after];
    if (before != after) inputs[after].push_back(before);
  }
}

void UnitGraph::keep_lead(const ModelChain& chain) {
  if (lead == chain.layers.size()) {
    for (std::uint32_t unit = 1; unit < units(); ++unit) inputs[unit].push_back(unit - 1);
    return;
  }
  const std::uint32_t trained = unit_of_layer_[lead];  // The first one that has a trained layer.
  const std::uint32_t last_frozen = lead > 0 ? unit_of_layer_[lead - 1] : 0;
  for (std::uint32_t unit = 1; unit < units(); ++unit) {
    if (lead > 0) inputs[unit].push_back(std::min(unit - 1, last_frozen));
    if (unit <= trained) continue;
    for (LayerIndex i = first_layer[unit]; i < first_layer[unit + 1]; ++i)
      if (chain.layers[i].is_frozen) inputs[unit].push_back(trained);
  }
}

}  // namespace spillway::planner
