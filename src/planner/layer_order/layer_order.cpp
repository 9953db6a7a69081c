#include "spillway/planner/layer_order/layer_order.h"

#include <algorithm>
#include <numeric>

#include "downset_cuts.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"
#include "spillway/planner/partition/cut_solvers.h"
#include "unit_graph.h"

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

/// Times closer than that count as equal.
constexpr double kSame = 1e-9;
/// Units beyond which named orders alone take longer than all the cutting.
constexpr std::uint32_t kMostUnits = 20'000;
/// Units beyond which sets of them take too much room.
constexpr std::uint32_t kMostUnitsOfSets = 4'096;

double least_seconds(const PartitionProblem& problem) {
  const auto solved = least_time_cuts(SegmentCosts(problem));
  return solved ? solved->worst : kNever;
}

class OrderSearch {
 public:
  OrderSearch(const PartitionProblem& problem, const UnitGraph& graph)
      : problem_(problem), graph_(graph), costs_(problem, graph) {
    choice_.seconds = choice_.recorded_seconds = least_seconds(problem);
    choice_.bound_seconds = costs_.bound_seconds();
  }

  OrderChoice find(const OrderEffort& effort) {
    // One way from the empty set to all of them takes so many.
    const bool may_count = effort.downsets > graph_.units();
    const std::vector<UnitOrder> orders =
        graph_.units() <= kMostUnits ? unit_orders(graph_) : std::vector<UnitOrder>();
    // The first one is the recorded order, which is the one to beat already.
    for (std::size_t i = 1; i < orders.size() && !is_at_bound(); ++i)
      consider(orders[i].name, orders[i].units);
    if (!is_at_bound() && may_count && graph_.units() <= kMostUnitsOfSets) search(orders, effort);
    // No order is faster than the bound, however it was found.
    if (is_at_bound()) choice_.is_exact = true;
    if (choice_.is_exact) choice_.bound_seconds = choice_.seconds;
    return std::move(choice_);
  }

 private:
  bool is_at_bound() const { return choice_.seconds <= choice_.bound_seconds * (1.0 + kSame); }

  void consider(std::string_view name, const std::vector<std::uint32_t>& units) {
    PartitionProblem other = problem_;
    LayerOrder layers = graph_.layers_of(units);
    other.chain = reordered(problem_.chain, layers);
    const double seconds = least_seconds(other);
    // Of equals the first stays, which is the recorded order where that will do.
    if (seconds >= choice_.seconds * (1.0 - kSame)) return;
    choice_.name = name;
    choice_.layers = std::move(layers);
    choice_.seconds = seconds;
  }

  /// All downsets where there are few enough, else some: better ways between those may exist.
  void search(const std::vector<UnitOrder>& orders, const OrderEffort& effort) {
    const Downsets sets(graph_, orders, effort.downsets);
    const DownsetSearch found = least_time_downsets(SetCosts(costs_, sets), sets,
                                                    choice_.seconds * (1.0 - kSame), effort.steps);
    choice_.downsets = sets.count();
    if (found.best) {
      std::vector<std::uint32_t> units;
      for (std::size_t k = 0; k + 1 < found.best->sets.size(); ++k)
        for (const std::uint32_t unit : sets.between(found.best->sets[k], found.best->sets[k + 1]))
          units.push_back(unit);
      consider("downsets", units);
    }
    // Both times were compared with a tolerance of their own.
    choice_.is_exact = found.is_finished && sets.are_all() &&
                       (!found.best || choice_.seconds <= found.best->seconds * (1.0 + 2 * kSame));
  }

  const PartitionProblem& problem_;
  const UnitGraph& graph_;
  const UnitCosts costs_;
  OrderChoice choice_;
};

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

OrderChoice choose_order(const PartitionProblem& problem, const OrderEffort& effort) {
  check(problem);
  const UnitGraph graph(problem.chain);
  if (problem.chain.may_reorder && !graph.has_one_order())
    return OrderSearch(problem, graph).find(effort);
  OrderChoice only;
  only.seconds = only.recorded_seconds = only.bound_seconds = least_seconds(problem);
  only.is_exact = true;
  return only;
}

}  // namespace spillway::planner
