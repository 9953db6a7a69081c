#include "unit_graph.h"

#include <algorithm>
#include <deque>

#include "layer_figures.h"

namespace spillway::layer_order {
namespace {

void sort_once(std::vector<std::uint32_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

using Units = std::vector<std::uint32_t>;
using Edges = std::vector<Units>;

enum class Pick : std::uint8_t {
  kFirstBranch,  ///< Of what became ready last, the smallest.
  kLastBranch,   ///< Of what became ready last, the largest.
  kInStep        ///< What became ready first.
};

/// All units, each behind its inputs.
Units sorted(const Edges& inputs, const Edges& readers, Pick pick) {
  Units missing;
  Units freed;
  for (std::uint32_t unit = 0; unit < inputs.size(); ++unit) {
    missing.push_back(static_cast<std::uint32_t>(inputs[unit].size()));
    if (missing.back() == 0) freed.push_back(unit);
  }
  // A queue for branches in step, a stack for one branch after the other.
  std::deque<std::uint32_t> ready;
  Units order;
  while (order.size() < inputs.size()) {
    // The last of the list is picked, so the smallest has to stand there.
    if (pick == Pick::kFirstBranch) std::reverse(freed.begin(), freed.end());
    ready.insert(ready.end(), freed.begin(), freed.end());
    freed.clear();
    const std::uint32_t unit = pick == Pick::kInStep ? ready.front() : ready.back();
    pick == Pick::kInStep ? ready.pop_front() : ready.pop_back();
    order.push_back(unit);
    for (const std::uint32_t reader : readers[unit])
      if (--missing[reader] == 0) freed.push_back(reader);
  }
  return order;
}

Units from_the_end(const UnitGraph& graph) {
  const std::uint32_t count = graph.units();
  // Numbered from the end, so that edges against their direction lead to larger numbers, too.
  const auto mirrored = [&](const Edges& edges) {
    Edges other(count);
    for (std::uint32_t unit = 0; unit < count; ++unit)
      for (std::size_t i = edges[unit].size(); i-- > 0;)
        other[count - 1 - unit].push_back(count - 1 - edges[unit][i]);
    return other;
  };
  // Against the edges, units that are read late are sorted late, just before their readers.
  Units order = sorted(mirrored(graph.readers), mirrored(graph.inputs), Pick::kLastBranch);
  std::reverse(order.begin(), order.end());
  for (std::uint32_t& unit : order) unit = count - 1 - unit;
  return order;
}

/// By how many bytes the cut behind a unit is wider than the cut before it.
class NarrowOrder {
 public:
  explicit NarrowOrder(const UnitGraph& graph) : graph_(graph) {
    for (const UnitTensor& tensor : graph.tensors)
      left_.push_back(static_cast<std::uint32_t>(tensor.readers.size()));
  }

  Units find() {
    Units missing;
    Units ready;
    for (std::uint32_t unit = 0; unit < graph_.units(); ++unit) {
      missing.push_back(static_cast<std::uint32_t>(graph_.inputs[unit].size()));
      if (missing.back() == 0) ready.push_back(unit);
    }
    // The smallest stands last, where equals are taken from.
    std::reverse(ready.begin(), ready.end());
    Units order;
    while (!ready.empty()) {
      const std::size_t next = narrowest(ready);
      const std::uint32_t unit = ready[next];
      ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(next));
      order.push_back(unit);
      for (const UnitInput& input : graph_.read[unit]) --left_[input.tensor];
      const std::size_t known = ready.size();
      for (const std::uint32_t reader : graph_.readers[unit])
        if (--missing[reader] == 0) ready.push_back(reader);
      std::reverse(ready.begin() + static_cast<std::ptrdiff_t>(known), ready.end());
    }
    return order;
  }

 private:
  /// Of equals the one that became ready last, which goes on where the order is.
  std::size_t narrowest(const Units& ready) const {
    constexpr std::size_t kMostLookedAt = 256;  // Wide graphs would take time by the square.
    std::size_t best = ready.size() - 1;
    double least = wider(ready[best]);
    const std::size_t end = ready.size() - std::min(ready.size(), kMostLookedAt);
    for (std::size_t i = best; i-- > end;) {
      const double here = wider(ready[i]);
      if (here < least) least = here, best = i;
    }
    return best;
  }

  double wider(std::uint32_t unit) const {
    double bytes = 0.0;
    for (const std::uint32_t tensor : graph_.made[unit]) bytes += graph_.tensors[tensor].bytes;
    for (const UnitInput& input : graph_.read[unit])
      // It is the last reader: behind it the tensor crosses no cut any more.
      if (left_[input.tensor] == 1) bytes -= graph_.tensors[input.tensor].bytes;
    return bytes;
  }

  const UnitGraph& graph_;
  Units left_;  ///< By tensor: readers that have not run.
};

}  // namespace

UnitGraph::UnitGraph(const partition::ModelChain& chain)
    : first_layer(partition::first_layers_of_units(chain)),
      lead(partition::leading_frozen_layers(chain)) {
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
    // Inputs ascend, so the last one tells.
    if (inputs[unit].empty() || inputs[unit].back() != unit - 1) return false;
  return true;
}

std::vector<partition::LayerIndex> UnitGraph::layers_of(
    const std::vector<std::uint32_t>& order) const {
  std::vector<partition::LayerIndex> layers;
  for (const std::uint32_t unit : order)
    for (partition::LayerIndex i = first_layer[unit]; i < first_layer[unit + 1]; ++i)
      layers.push_back(i);
  return layers;
}

void UnitGraph::add_tensors(const partition::ModelChain& chain) {
  for (const partition::BorderTensor& border : chain.borders) {
    UnitTensor tensor{unit_of_layer_[border.producer], {}, 0.0};
    tensor.bytes = static_cast<double>(border.bytes.count());
    std::vector<std::uint32_t> keepers;
    for (const partition::LayerIndex consumer : border.consumers) {
      const std::uint32_t unit = unit_of_layer_[consumer];
      // Within a unit it never crosses a cut.
      if (unit == tensor.producer) continue;
      tensor.readers.push_back(unit);
      // Layers that lead frozen have no backward that would need it again.
      if (consumer >= lead) keepers.push_back(unit);
    }
    if (tensor.readers.empty()) continue;
    // Several layers of a unit may read it, and a unit receives it once.
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

void UnitGraph::add_edges(const partition::ModelChain& chain) {
  for (const partition::LayerDependence& each : chain.dependences) {
    const std::uint32_t before = unit_of_layer_[each.before];
    const std::uint32_t after = unit_of_layer_[each.after];
    if (before != after) inputs[after].push_back(before);
  }
}

void UnitGraph::keep_lead(const partition::ModelChain& chain) {
  if (lead == chain.layers.size()) {
    // Nothing is trained: all layers lead, and keep their order.
    for (std::uint32_t unit = 1; unit < units(); ++unit) inputs[unit].push_back(unit - 1);
    return;
  }
  const std::uint32_t trained = unit_of_layer_[lead];  // The first one that has a trained layer.
  const std::uint32_t last_frozen = lead > 0 ? unit_of_layer_[lead - 1] : 0;
  for (std::uint32_t unit = 1; unit < units(); ++unit) {
    // Units that lead run one behind the other, and everything else behind the last of them.
    if (lead > 0) inputs[unit].push_back(std::min(unit - 1, last_frozen));
    // In front of it all layers lead frozen already.
    if (unit <= trained) continue;
    // A frozen layer before the first trained one would lead as well, and change what backward
    // costs.
    for (partition::LayerIndex i = first_layer[unit]; i < first_layer[unit + 1]; ++i)
      if (chain.layers[i].is_frozen) inputs[unit].push_back(trained);
  }
}

std::vector<UnitOrder> unit_orders(const UnitGraph& graph) {
  std::vector<UnitOrder> orders;
  const auto add = [&](std::string_view name, Units units) {
    // Each order costs a search for its cuts.
    const auto is_same = [&](const UnitOrder& other) { return other.units == units; };
    if (std::none_of(orders.begin(), orders.end(), is_same))
      orders.push_back({name, std::move(units)});
  };
  Units recorded(graph.units());
  for (std::uint32_t unit = 0; unit < graph.units(); ++unit) recorded[unit] = unit;
  add("recorded", std::move(recorded));
  add("depth-first", sorted(graph.inputs, graph.readers, Pick::kFirstBranch));
  add("breadth-first", sorted(graph.inputs, graph.readers, Pick::kInStep));
  add("from-the-end", from_the_end(graph));
  add("narrow", NarrowOrder(graph).find());
  return orders;
}

}  // namespace spillway::layer_order
