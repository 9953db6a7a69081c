#include <algorithm>
#include <optional>
#include <utility>

#include "spillway/base/error.h"
#include "workloads.h"

namespace spillway::quality {

using namespace partition;

ModelChain vpipe_chain() {
  ModelLayer block;
  block.name = "block";
  block.forward_seconds = 1.0;
  block.backward_seconds = 2.0;
  block.stash = Bytes(1000);
  block.recompute = {{1.0, Bytes()}};
  ModelChain chain;
  chain.layers.assign(97, block);
  return chain;
}

namespace {

/// Layers that stand several times in a row.
class Repetition {
 public:
  Repetition(const ModelChain& chain, LayerRange range, std::uint32_t times)
      : chain_(chain), range_(range), times_(times), length_(range.last - range.first + 1) {}

  ModelChain make() {
    ModelChain longer;
    const auto first = chain_.layers.begin();
    longer.layers.assign(first, first + range_.first);
    for (std::uint32_t k = 0; k < times_; ++k)
      longer.layers.insert(longer.layers.end(), first + range_.first, first + range_.last + 1);
    longer.layers.insert(longer.layers.end(), first + range_.last + 1, chain_.layers.end());
    for (const BorderTensor& border : chain_.borders) add(border, longer);
    if (input_.has_value() != output_.has_value())
      throw ConfigError("layers {} to {} read a tensor and make none, or the other way round; name "
                        "layers that can stand in a row",
                        range_.first, range_.last);
    if (output_) join(longer);
    check(longer);
    return longer;
  }

 private:
  bool is_inside(LayerIndex layer) const { return layer >= range_.first && layer <= range_.last; }
  /// Where a layer of the `k`th time stands, or one of before or behind them.
  LayerIndex place(LayerIndex layer, std::uint32_t k) const {
    if (layer < range_.first) return layer;
    return layer + length_ * (is_inside(layer) ? k : times_ - 1);
  }

  void add(const BorderTensor& border, ModelChain& longer) {
    const auto inside = std::count_if(border.consumers.begin(), border.consumers.end(),
                                      [&](LayerIndex layer) { return is_inside(layer); });
    const bool reads_all_inside = inside == static_cast<std::ptrdiff_t>(border.consumers.size());
    if (is_inside(border.producer) && !reads_all_inside) {
      set(output_, border);
    } else if (!is_inside(border.producer) && inside > 0) {
      set(input_, border);
    } else {
      const std::uint32_t times = inside > 0 ? times_ : 1;
      for (std::uint32_t k = 0; k < times; ++k) {
        BorderTensor moved{place(border.producer, k), {}, border.bytes};
        for (const LayerIndex layer : border.consumers) moved.consumers.push_back(place(layer, k));
        longer.borders.push_back(std::move(moved));
      }
    }
  }

  void set(std::optional<BorderTensor>& one, const BorderTensor& border) const {
    if (one)
      throw ConfigError("layers {} to {} share more than one tensor with others on a side; name "
                        "layers that can stand in a row",
                        range_.first, range_.last);
    one = border;
  }

  /// The output of each time is the input of the next one, and of what is behind the last one.
  void join(ModelChain& longer) const {
    BorderTensor first{input_->producer, {}, input_->bytes};
    for (const LayerIndex layer : input_->consumers) {
      if (!is_inside(layer) && layer > range_.last)
        throw ConfigError("layer {} reads what the repeated layers read; name others", layer);
      first.consumers.push_back(place(layer, 0));
    }
    longer.borders.push_back(std::move(first));
    for (std::uint32_t k = 0; k < times_; ++k) {
      const bool is_last = k + 1 == times_;
      BorderTensor made{place(output_->producer, k), {}, output_->bytes};
      for (const LayerIndex layer : output_->consumers)
        if (is_inside(layer) || is_last) made.consumers.push_back(place(layer, k));
      for (const LayerIndex layer : input_->consumers)
        if (is_inside(layer) && !is_last) made.consumers.push_back(place(layer, k + 1));
      longer.borders.push_back(std::move(made));
    }
  }

  const ModelChain& chain_;
  LayerRange range_;
  std::uint32_t times_;
  LayerIndex length_;
  std::optional<BorderTensor> input_, output_;
};

}  // namespace

ModelChain repeated(const ModelChain& chain, LayerRange layers, std::uint32_t times) {
  return Repetition(chain, layers, times).make();
}

ModelChain shortened(ModelChain chain, std::string_view name) {
  if (!chain.borders.empty()) return chain;
  std::vector<ModelLayer> kept;
  bool is_first = true;
  for (auto layer = chain.layers.rbegin(); layer != chain.layers.rend(); ++layer) {
    const bool has_name = layer->name == name;
    if (!has_name || is_first) kept.push_back(*layer);
    is_first &= !has_name;
  }
  chain.layers.assign(kept.rbegin(), kept.rend());
  return chain;
}

}  // namespace spillway::quality
