#include "spillway/planner/partition/layer_order.h"

#include <algorithm>
#include <numeric>

#include "order/unit_orders.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"

namespace spillway::planner {
namespace {

/// By layer, its place in the order.
std::vector<LayerIndex> places_of(const ModelChain& chain, const LayerOrder& order) {
  const std::size_t count = chain.layers.size();
  if (order.size() != count)
    throw ConfigError("the order has {} layers, and the model {}; name each layer once",
                      order.size(), count);
  std::vector<LayerIndex> places(count, static_cast<LayerIndex>(count));
  for (LayerIndex place = 0; place < count; ++place) {
    const LayerIndex layer = order[place];
    if (layer >= count)
      throw ConfigError("place {} of the order names layer {}, and there are {}; layers count from "
                        "0",
                        place, layer, count);
    if (places[layer] != count)
      throw ConfigError("the order names layer {} at places {} and {}; name each layer once", layer,
                        places[layer], place);
    places[layer] = place;
  }
  return places;
}

bool is_recorded(const LayerOrder& order) {
  for (LayerIndex place = 0; place < order.size(); ++place)
    if (order[place] != place) return false;
  return true;
}

void check_waits(const ModelChain& chain, const std::vector<LayerIndex>& places, LayerIndex before,
                 LayerIndex after) {
  if (places[before] < places[after]) return;
  throw ConfigError("the order runs layer {} ('{}') before layer {} ('{}'), which it waits for; "
                    "keep to what layers read",
                    after, shown_text(chain.layers[after].name), before,
                    shown_text(chain.layers[before].name));
}

std::vector<LayerIndex> checked_places(const ModelChain& chain, const LayerOrder& order) {
  std::vector<LayerIndex> places = places_of(chain, order);
  if (!chain.may_reorder && !is_recorded(order))
    throw ConfigError("the layers of this model run as they stand, since nobody has told all that "
                      "they wait for; leave the order as it is");
  for (const BorderTensor& border : chain.borders)
    for (const LayerIndex consumer : border.consumers)
      check_waits(chain, places, border.producer, consumer);
  for (const LayerDependence& each : chain.dependences)
    check_waits(chain, places, each.before, each.after);
  for (const LayerRange& range : chain.together)
    for (LayerIndex layer = range.first; layer < range.last; ++layer)
      if (places[layer + 1] != places[layer] + 1)
        throw ConfigError("the order tears layers {} and {} apart, which stay together; keep the "
                          "layers of a group in their order",
                          layer, layer + 1);
  return places;
}

}  // namespace

void check(const ModelChain& chain, const LayerOrder& order) {
  if (!order.empty()) checked_places(chain, order);
}

ModelChain reordered(const ModelChain& chain, const LayerOrder& order) {
  if (order.empty()) return chain;
  const std::vector<LayerIndex> places = checked_places(chain, order);
  ModelChain result;
  result.may_reorder = chain.may_reorder;
  for (const LayerIndex layer : order) result.layers.push_back(chain.layers[layer]);
  for (const BorderTensor& border : chain.borders) {
    BorderTensor moved{places[border.producer], {}, border.bytes};
    for (const LayerIndex consumer : border.consumers) moved.consumers.push_back(places[consumer]);
    std::sort(moved.consumers.begin(), moved.consumers.end());
    result.borders.push_back(std::move(moved));
  }
  for (const TiedWeights& tie : chain.ties) {
    TiedWeights moved{{}, tie.bytes};
    for (const LayerIndex layer : tie.layers) moved.layers.push_back(places[layer]);
    std::sort(moved.layers.begin(), moved.layers.end());
    result.ties.push_back(std::move(moved));
  }
  for (const LayerRange& range : chain.together)
    result.together.push_back({places[range.first], places[range.last]});
  for (const LayerDependence& each : chain.dependences)
    result.dependences.push_back({places[each.before], places[each.after]});
  return result;
}

std::vector<LayerRange> layers_at(const LayerOrder& order, LayerIndex first, LayerIndex last) {
  if (order.empty()) return {{first, last}};
  LayerOrder layers(order.begin() + first, order.begin() + last + 1);
  std::sort(layers.begin(), layers.end());
  std::vector<LayerRange> ranges;
  for (const LayerIndex layer : layers) {
    if (!ranges.empty() && ranges.back().last + 1 == layer)
      ranges.back().last = layer;
    else
      ranges.push_back({layer, layer});
  }
  return ranges;
}

std::vector<NamedOrder> named_orders(const ModelChain& chain) {
  check(chain);
  if (!chain.may_reorder) {
    LayerOrder recorded(chain.layers.size());
    std::iota(recorded.begin(), recorded.end(), 0U);
    return {{"recorded", std::move(recorded)}};
  }
  const UnitGraph graph(chain);
  std::vector<NamedOrder> orders;
  for (const UnitOrder& each : unit_orders(graph))
    orders.push_back({each.name, graph.layers_of(each.units)});
  return orders;
}

}  // namespace spillway::planner
