#include "layer_figures.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plain_figures.h"

namespace spillway::partition {

std::vector<LayerIndex> first_layers_of_units(const ModelChain& chain) {
  const auto layers = static_cast<LayerIndex>(chain.layers.size());
  // Groups may overlap or lie in each other: what counts is whether any of them is around a cut.
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
  // Frozen weights never change, so there is no second version of them.
  if (layer.is_frozen) return {bytes, 0.0};
  return {bytes * (layer.static_ratio - 1.0), bytes};
}

UnitLoad& UnitLoad::operator+=(const UnitLoad& other) {
  seconds += other.seconds;
  fixed += other.fixed;
  versioned += other.versioned;
  buffers += other.buffers;
  stash += other.stash;
  return *this;
}

void UnitLoad::add(const ModelLayer& layer, bool leads_frozen) {
  const SumPair bytes = static_pair(layer, as_double(layer.parameters));
  fixed += bytes.a;
  versioned += bytes.b;
  buffers += as_double(layer.buffers);
  seconds += layer.forward_seconds;
  // No gradient goes there, so nothing is kept for one.
  if (leads_frozen) return;
  seconds += layer.backward_seconds;
  stash += as_double(layer.stash);
}

std::vector<SumPair> useful_points(const ModelLayer& layer) {
  const auto stash = static_cast<double>(layer.stash.count());
  // Not to recompute is a point, too.
  std::vector<SumPair> all{{0.0, 0.0}};
  for (const RecomputePoint& point : layer.recompute)
    all.push_back({point.seconds, stash - static_cast<double>(point.stash.count())});
  // Of points that take equally long the one that saves most comes first, and beats the others.
  std::stable_sort(all.begin(), all.end(), [](const SumPair& one, const SumPair& other) {
    return one.a != other.a ? one.a < other.a : one.b > other.b;
  });
  std::vector<SumPair> useful;
  for (const SumPair& point : all)
    if (useful.empty() || point.b > useful.back().b) useful.push_back(point);
  return useful;
}

std::vector<SumPair> hull_of(const std::vector<SumPair>& useful) {
  std::vector<SumPair> hull{{0.0, 0.0}};
  for (const SumPair& point : useful) {
    if (point.b <= 0.0) continue;
    const auto is_below_line = [&] {
      const SumPair& before = hull[hull.size() - 2];
      const SumPair last = hull.back() - before;
      const SumPair next = point - before;
      return last.b * next.a <= next.b * last.a;
    };
    // A point under the line between its neighbours is beaten by a mixture of these two.
    while (hull.size() > 1 && is_below_line()) hull.pop_back();
    hull.push_back(point);
  }
  return hull;
}

double density_of(const SumPair& item) { return item.a > 0.0 ? item.b / item.a : kNever; }

RankedSums sums_by_density(const std::vector<SumPair>& items) {
  std::vector<double> density;
  for (const SumPair& item : items) density.push_back(density_of(item));
  std::vector<std::uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t one, std::uint32_t other) {
    return density[one] > density[other];
  });
  // Ranks, and not a list in their order: items stay where their layers are, so that those of a
  // segment are one stretch.
  std::vector<std::uint32_t> rank(items.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  return {std::move(rank), items};
}

std::vector<SumPair> recompute_items(const ModelLayer& layer) {
  const std::vector<SumPair> hull = hull_of(useful_points(layer));
  std::vector<SumPair> items;
  for (std::size_t i = 1; i < hull.size(); ++i) items.push_back(hull[i] - hull[i - 1]);
  return items;
}

}  // namespace spillway::partition
