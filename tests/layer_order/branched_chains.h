#pragma once

#include <algorithm>
#include <functional>

#include "random_problems.h"
#include "spillway/planner/layer_order/layer_order.h"

namespace spillway::layer_order {

/// A layer of so many seconds, forward alone.
inline partition::ModelLayer timed_layer(double seconds) {
  partition::ModelLayer layer;
  layer.name = "l";
  layer.forward_seconds = seconds;
  layer.backward_seconds = 0.0;
  return layer;
}

/// Layers of these seconds; `reads` are pairs of a producer and its reader, tensors of `bytes`
/// each.
inline partition::PartitionProblem branched_problem(
    const std::vector<double>& seconds,
    const std::vector<std::pair<partition::LayerIndex, partition::LayerIndex>>& reads,
    std::uint32_t stages, Bytes bytes = Bytes(1)) {
  partition::PartitionProblem problem;
  for (const double each : seconds) problem.chain.layers.push_back(timed_layer(each));
  for (const auto& [producer, reader] : reads)
    problem.chain.borders.push_back({producer, {reader}, bytes});
  problem.chain.may_reorder = true;
  problem.devices.resize(stages);
  return problem;
}

/// A random problem of which a third of the tensors is left out, so that branches come about, and
/// some layers wait without reading anything.
inline partition::PartitionProblem random_branches(std::uint64_t seed,
                                                   const partition::ProblemShape& shape) {
  partition::PartitionProblem problem = partition::random_problem(seed, shape);
  partition::ModelChain& chain = problem.chain;
  chain.may_reorder = true;
  std::uint64_t bits = seed * 0x9e3779b97f4a7c15ULL + 1;
  const auto below = [&](std::uint64_t end) {
    bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
    return bits % end;
  };
  for (std::size_t i = chain.borders.size(); i-- > 0;)
    if (below(3) == 0) chain.borders.erase(chain.borders.begin() + static_cast<std::ptrdiff_t>(i));
  for (partition::LayerIndex i = 1; i < chain.layers.size(); ++i)
    if (below(4) == 0)
      chain.dependences.push_back({static_cast<partition::LayerIndex>(below(i)), i});
  return problem;
}

/// Calls `see` with every order that the chain allows, of which the leading frozen layers stay as
/// they are and the other frozen ones come behind the first trained one.
inline void for_all_orders(const partition::ModelChain& chain,
                           const std::function<void(const LayerOrder&)>& see) {
  const auto count = static_cast<partition::LayerIndex>(chain.layers.size());
  partition::LayerIndex lead = 0;
  while (lead < count && chain.layers[lead].is_frozen) ++lead;
  std::vector<std::vector<partition::LayerIndex>> waits(count);
  for (const partition::BorderTensor& border : chain.borders)
    for (const partition::LayerIndex reader : border.consumers)
      waits[reader].push_back(border.producer);
  for (const partition::LayerDependence& each : chain.dependences)
    waits[each.after].push_back(each.before);
  for (partition::LayerIndex i = 1; i < count; ++i) {
    if (i < lead) waits[i].push_back(i - 1);
    if (i >= lead && lead > 0) waits[i].push_back(lead - 1);
    if (i > lead && lead < count && chain.layers[i].is_frozen) waits[i].push_back(lead);
  }
  LayerOrder order;
  std::vector<char> is_placed(count, 0);
  const std::function<void()> place = [&] {
    if (order.size() == count) {
      for (const partition::LayerRange& range : chain.together) {
        const auto first = std::find(order.begin(), order.end(), range.first) - order.begin();
        for (partition::LayerIndex i = range.first; i <= range.last; ++i) {
          const auto at = static_cast<std::size_t>(first) + (i - range.first);
          if (at >= order.size() || order[at] != i) return;
        }
      }
      return see(order);
    }
    for (partition::LayerIndex layer = 0; layer < count; ++layer) {
      const bool may_run =
          is_placed[layer] == 0 &&
          std::all_of(waits[layer].begin(), waits[layer].end(),
                      [&](partition::LayerIndex each) { return is_placed[each] != 0; });
      if (!may_run) continue;
      is_placed[layer] = 1;
      order.push_back(layer);
      place();
      order.pop_back();
      is_placed[layer] = 0;
    }
  };
  place();
}

}  // namespace spillway::layer_order
