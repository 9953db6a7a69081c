#include "layer_graph.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace spillway::profile {

bool LayerGraph::connect(std::size_t from, std::size_t to) {
  if (!edges_.emplace(from, to).second) return false;
  inputs_[to].push_back(from);
  return true;
}

LayerGraph::Order LayerGraph::order() const {
  std::vector<std::size_t> missing(inputs_.size());
  std::vector<std::vector<std::size_t>> readers(inputs_.size());
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t layer = 0; layer < inputs_.size(); ++layer) {
    missing[layer] = inputs_[layer].size();
    for (const std::size_t input : inputs_[layer]) readers[input].push_back(layer);
    if (missing[layer] == 0) ready.push(layer);
  }
  Order found;
  while (!ready.empty()) {
    const std::size_t layer = ready.top();
    ready.pop();
    found.layers.push_back(layer);
    for (const std::size_t reader : readers[layer]) {
      if (--missing[reader] == 0) ready.push(reader);
    }
  }
  if (found.layers.size() == inputs_.size()) return found;
  // Whatever waits has an input that waits: going back along them ends in a circle.
  std::size_t layer = 0;
  while (missing[layer] == 0) ++layer;
  std::vector<bool> is_visited(inputs_.size());
  while (!is_visited[layer]) {
    is_visited[layer] = true;
    for (const std::size_t input : inputs_[layer]) {
      if (missing[input] == 0) continue;
      layer = input;
      break;
    }
  }
  found.cyclic = layer;
  return found;
}

std::optional<std::size_t> LayerGraph::apart(const std::vector<bool>& counts) const {
  const auto first = std::find(counts.begin(), counts.end(), true);
  if (first == counts.end()) return std::nullopt;
  std::vector<std::vector<std::size_t>> neighbours(inputs_.size());
  for (const auto& [from, to] : edges_) {
    neighbours[from].push_back(to);
    neighbours[to].push_back(from);
  }
  std::vector<std::size_t> waiting{static_cast<std::size_t>(first - counts.begin())};
  std::vector<bool> is_tied(inputs_.size(), false);
  is_tied[waiting.front()] = true;
  while (!waiting.empty()) {
    const std::size_t layer = waiting.back();
    waiting.pop_back();
    for (const std::size_t next : neighbours[layer]) {
      if (is_tied[next]) continue;
      is_tied[next] = true;
      waiting.push_back(next);
    }
  }
  for (std::size_t layer = 0; layer < counts.size(); ++layer)
    if (counts[layer] && !is_tied[layer]) return layer;
  return std::nullopt;
}

}  // namespace spillway::profile
