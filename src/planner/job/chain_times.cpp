#include "chain_times.h"

#include <algorithm>
#include <limits>

namespace spillway::planner {

LayerTimes& LayerTimes::operator+=(const LayerTimes& other) {
  forward += other.forward;
  input += other.input;
  weight += other.weight;
  return *this;
}

ChainTimes::ChainTimes(const ModelChain& chain, double update_seconds)
    : may_reorder_(chain.may_reorder), may_be_last_(chain.layers.size(), false) {
  const LayerIndex lead = leading_frozen_layers(chain);
  double least_weight = std::numeric_limits<double>::infinity();
  for (LayerIndex i = 0; i < chain.layers.size(); ++i) {
    const ModelLayer& layer = chain.layers[i];
    LayerTimes times{layer.forward_seconds};
    // In another order any frozen one may lead.
    is_trained_.push_back(may_reorder_ ? !layer.is_frozen : i >= lead);
    if (is_trained_[i]) {
      times.input = times.weight = layer.backward_seconds / 2;
      trained_ += times;
    }
    if (!layer.is_frozen && layer.parameters > Bytes(0)) update_seconds_ = update_seconds;
    if (may_reorder_ ? is_trained_[i] : i == lead)
      least_weight = std::min(least_weight, times.weight);
    layers_.push_back(times);
    all_ += times;
  }
  if (least_weight < std::numeric_limits<double>::infinity()) last_weight_gradient_ = least_weight;
  if (may_reorder_) {
    find_orders(chain);
    return;
  }
  LayerTimes before;
  for (const LayerTimes& each : layers_) {
    before_.push_back(before);
    before += each;
  }
  may_be_last_.back() = true;
}

/// By what each layer waits for, directly or not.
void ChainTimes::find_orders(const ModelChain& chain) {
  const std::size_t count = layers_.size();
  std::vector<std::vector<LayerIndex>> inputs(count);
  may_be_last_.assign(count, true);
  const auto add = [&](LayerIndex before, LayerIndex after) {
    inputs[after].push_back(before);
    may_be_last_[before] = false;
  };
  for (const BorderTensor& border : chain.borders)
    for (const LayerIndex consumer : border.consumers) add(border.producer, consumer);
  for (const LayerDependence& each : chain.dependences) add(each.before, each.after);
  std::vector<std::vector<bool>> waits_for(count, std::vector<bool>(count, false));
  for (std::size_t i = 0; i < count; ++i) {
    for (const LayerIndex input : inputs[i]) {
      waits_for[i][input] = true;
      for (LayerIndex j = 0; j < input; ++j)
        if (waits_for[input][j]) waits_for[i][j] = true;
    }
    LayerTimes before;
    for (std::size_t j = 0; j < i; ++j)
      if (waits_for[i][j]) before += layers_[j];
    before_.push_back(before);
  }
}

}  // namespace spillway::planner
