#pragma once

#include <vector>

#include "spillway/planner/partition/model_chain.h"

namespace spillway::planner {

/// Seconds of one micro-batch. A backward is taken as two halves, as the action lists have it.
struct LayerTimes {
  double forward = 0.0;
  double input = 0.0;   ///< The gradient of what comes in, for the layers before.
  double weight = 0.0;  ///< The gradients of the parameters.

  double backward() const { return input + weight; }
  double work() const { return forward + backward(); }
  LayerTimes& operator+=(const LayerTimes& other);
};

/// Least times of a chain, in any order of its branches and under any cuts: no
/// recomputation, no swaps, no messages.
class ChainTimes {
 public:
  ChainTimes(const ModelChain& chain, double update_seconds);

  LayerIndex size() const { return static_cast<LayerIndex>(layers_.size()); }
  const LayerTimes& operator[](LayerIndex layer) const { return layers_[layer]; }
  const LayerTimes& all() const { return all_; }
  /// Of the layers that run before it in every order.
  const LayerTimes& before(LayerIndex layer) const { return before_[layer]; }
  /// Whether some order ends with it.
  bool may_be_last(LayerIndex layer) const { return may_be_last_[layer]; }
  bool may_reorder() const { return may_reorder_; }
  /// Whether gradients reach it whatever the order: no layer that may lead frozen.
  bool is_trained(LayerIndex layer) const { return is_trained_[layer]; }
  /// Of these layers.
  const LayerTimes& trained() const { return trained_; }
  /// Of the optimizer; 0 where nothing is trained.
  double update_seconds() const { return update_seconds_; }
  /// Of the first layer that has a backward, whichever that may be: it is left when the gradient
  /// has come through all layers.
  double last_weight_gradient() const { return last_weight_gradient_; }

 private:
  void find_orders(const ModelChain& chain);

  bool may_reorder_;
  double update_seconds_ = 0.0;
  double last_weight_gradient_ = 0.0;
  LayerTimes all_;
  LayerTimes trained_;
  std::vector<LayerTimes> layers_;
  std::vector<LayerTimes> before_;
  std::vector<bool> may_be_last_;
  std::vector<bool> is_trained_;
};

}  // namespace spillway::planner
