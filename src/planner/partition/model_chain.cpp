#include "spillway/planner/partition/model_chain.h"

#include <algorithm>
#include <cmath>

#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/shown_text.h"

namespace spillway::partition {
namespace {

std::string called(const ModelChain& chain, LayerIndex layer) {
  return message("layer {} ('{}')", layer, shown_text(chain.layers[layer].name));
}

/// Some thirty years, so that sums and products of times stay far below what searches call endless.
constexpr double kMostSeconds = 1e9;
constexpr double kMostRatio = 1e6;

void check_seconds(double seconds, const std::string& layer, const char* what) {
  // That is what stands in a layer that nobody has measured (`kNotMeasured`).
  if (std::isnan(seconds))
    throw ConfigError("{} has no {}; measure it, or write 0 for what takes no time", layer, what);
  if (seconds < 0.0 || seconds > kMostSeconds)
    throw ConfigError("{} has {} of {} s; measure it again, times are at least 0 and at most {} s",
                      layer, what, seconds, kMostSeconds);
}

void check_layer(const ModelChain& chain, LayerIndex index) {
  const ModelLayer& layer = chain.layers[index];
  const std::string name = called(chain, index);
  check_seconds(layer.forward_seconds, name, "forward time");
  check_seconds(layer.backward_seconds, name, "backward time");
  if (!(layer.static_ratio >= 1.0) || layer.static_ratio > kMostRatio)
    throw ConfigError("{} has a static ratio of {}; weights alone are 1, Adam makes it 4", name,
                      layer.static_ratio);
  for (const RecomputePoint& point : layer.recompute) {
    check_seconds(point.seconds, name, "recompute time");
    // It would take time and save nothing, so it can only be a slip.
    if (point.stash > layer.stash)
      throw ConfigError(
          "{} would keep {} when recomputed, more than its stash of {}; drop that point", name,
          point.stash, layer.stash);
  }
}

void check_exists(const ModelChain& chain, LayerIndex layer, const char* what, std::size_t index) {
  if (layer < chain.layers.size()) return;
  throw ConfigError("{} {} names layer {}, and there are {}; layers count from 0", what, index,
                    layer, chain.layers.size());
}

void check_tie(const ModelChain& chain, std::size_t index) {
  std::vector<LayerIndex> layers = chain.ties[index].layers;
  if (layers.size() < 2)
    throw ConfigError("tie {} names {}; it takes two to share weights, so drop it", index,
                      counted(layers.size(), "layer"));
  for (const LayerIndex layer : layers) check_exists(chain, layer, "tie", index);
  // So a layer that is named twice stands beside itself.
  std::sort(layers.begin(), layers.end());
  const ModelLayer& first = chain.layers[layers[0]];
  for (std::size_t k = 1; k < layers.size(); ++k) {
    if (layers[k] == layers[k - 1])
      throw ConfigError("tie {} names layer {} twice; name each layer once", index, layers[k]);
    const ModelLayer& other = chain.layers[layers[k]];
    // What a stage with both spares is counted by one of the two, gradients and states included.
    if (first.is_frozen != other.is_frozen || first.static_ratio != other.static_ratio)
      throw ConfigError("tie {} shares weights of {} and {}, which are trained differently; give "
                        "both the same static ratio, and freeze both or none",
                        index, called(chain, layers[0]), called(chain, layers[k]));
  }
}

void check_ties(const ModelChain& chain) {
  // Several ties may share weights of one layer, and all together must not exceed them.
  std::vector<Bytes> tied(chain.layers.size());
  for (std::size_t i = 0; i < chain.ties.size(); ++i) {
    check_tie(chain, i);
    for (const LayerIndex layer : chain.ties[i].layers) {
      tied[layer] += chain.ties[i].bytes;
      if (chain.layers[layer].parameters < tied[layer])
        throw ConfigError(
            "tie {} makes {} share {}, and its parameters are {}; correct one of them", i,
            called(chain, layer), tied[layer], chain.layers[layer].parameters);
    }
  }
}

/// To the nearest byte, and far below what sums could overflow.
Bytes scaled(Bytes bytes, double factor) {
  constexpr double kMostBytes = 0x1p62;
  const double exact = static_cast<double>(bytes.count()) * factor;
  return Bytes(static_cast<std::uint64_t>(std::min(exact + 0.5, kMostBytes)));
}

}  // namespace

void check(const ModelChain& chain) {
  if (chain.layers.empty())
    throw ConfigError("a model without layers cannot be cut; give it one layer at least");
  for (LayerIndex i = 0; i < chain.layers.size(); ++i) check_layer(chain, i);
  for (std::size_t i = 0; i < chain.borders.size(); ++i) {
    const BorderTensor& border = chain.borders[i];
    check_exists(chain, border.producer, "border tensor", i);
    for (const LayerIndex consumer : border.consumers) {
      check_exists(chain, consumer, "border tensor", i);
      // Searches count a tensor from its producer on to the right; one that ran back would be lost.
      if (consumer <= border.producer)
        throw ConfigError("border tensor {} goes from layer {} back to layer {}; put the layers in "
                          "the order in which they run",
                          i, border.producer, consumer);
    }
  }
  for (std::size_t i = 0; i < chain.dependences.size(); ++i) {
    const LayerDependence& each = chain.dependences[i];
    check_exists(chain, each.before, "dependence", i);
    check_exists(chain, each.after, "dependence", i);
    if (each.after <= each.before)
      throw ConfigError("dependence {} makes layer {} wait for layer {}; put the layers in the "
                        "order in which they run",
                        i, each.after, each.before);
  }
  check_ties(chain);
  for (std::size_t i = 0; i < chain.together.size(); ++i) {
    // The first layer exists where the last one does and is not before it.
    check_exists(chain, chain.together[i].last, "group", i);
    if (chain.together[i].first > chain.together[i].last)
      throw ConfigError("group {} goes from layer {} back to layer {}; swap its ends", i,
                        chain.together[i].first, chain.together[i].last);
  }
}

LayerIndex leading_frozen_layers(const ModelChain& chain) {
  const auto trained = std::find_if(chain.layers.begin(), chain.layers.end(),
                                    [](const ModelLayer& layer) { return !layer.is_frozen; });
  return static_cast<LayerIndex>(trained - chain.layers.begin());
}

ModelChain scaled(ModelChain chain, double factor) {
  // Weights, states and buffers are the same for any size of a micro-batch.
  for (ModelLayer& layer : chain.layers) {
    layer.forward_seconds *= factor;
    layer.backward_seconds *= factor;
    layer.stash = scaled(layer.stash, factor);
    layer.working_peak = scaled(layer.working_peak, factor);
    for (RecomputePoint& point : layer.recompute) {
      point.seconds *= factor;
      point.stash = scaled(point.stash, factor);
    }
  }
  for (BorderTensor& border : chain.borders) border.bytes = scaled(border.bytes, factor);
  return chain;
}

}  // namespace spillway::partition
