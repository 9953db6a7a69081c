#include "branched_models.h"

#include <random>
#include <utility>

namespace spillway {
namespace {

using namespace spillway::partition;

/// Writes down layers in the order in which they run. All differ somewhat, the same each time.
class ModelWriter {
 public:
  explicit ModelWriter(std::string name) : name_(std::move(name)) { chain_.may_reorder = true; }

  /// A layer of some milliseconds with an output of some megabytes. Returns its number.
  LayerIndex add(double milliseconds, double megabytes, const std::vector<LayerIndex>& inputs) {
    ModelLayer layer;
    layer.name = name_;
    layer.forward_seconds = 1e-3 * milliseconds * between(0.7, 1.3);
    layer.backward_seconds = 2 * layer.forward_seconds;
    layer.parameters = Bytes(static_cast<std::uint64_t>(1e6 * between(1, 4)));
    layer.static_ratio = 4;
    layer.stash = Bytes(static_cast<std::uint64_t>(1e6 * megabytes));
    layer.recompute = {{layer.forward_seconds, Bytes()}};
    const auto here = static_cast<LayerIndex>(chain_.layers.size());
    chain_.borders.push_back({here, {}, layer.stash});
    for (const LayerIndex input : inputs) chain_.borders[input].consumers.push_back(here);
    chain_.layers.push_back(std::move(layer));
    return here;
  }

  /// Layers one after the other.
  LayerIndex add_row(std::uint32_t layers, double milliseconds, double megabytes,
                     LayerIndex input) {
    for (std::uint32_t i = 0; i < layers; ++i) input = add(milliseconds, megabytes, {input});
    return input;
  }

  std::uint64_t random() { return random_(); }
  BranchedModel finish() { return {std::move(name_), std::move(chain_)}; }

 private:
  double between(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() % 1'000'000) * 1e-6;
  }

  std::string name_;
  ModelChain chain_;
  std::mt19937_64 random_{7};
};

BranchedModel two_towers() {
  ModelWriter model("two towers");
  const LayerIndex image = model.add_row(15, 3, 60, model.add(1, 60, {}));
  const LayerIndex text = model.add_row(11, 2, 8, model.add(1, 8, {}));
  model.add_row(3, 2, 8, model.add(1, 4, {image, text}));
  return model.finish();
}

BranchedModel inception() {
  ModelWriter model("Inception, 9 modules");
  LayerIndex last = model.add_row(3, 4, 60, model.add(2, 60, {}));
  for (std::uint32_t module = 0; module < 9; ++module) {
    std::vector<LayerIndex> branches;
    for (const std::uint32_t depth : {1U, 2U, 3U, 2U})
      branches.push_back(model.add_row(depth, 1.5, 12, last));
    last = model.add(0.2, 40, branches);
  }
  model.add_row(2, 1, 4, last);
  return model.finish();
}

BranchedModel nas_cells() {
  ModelWriter model("NAS, 6 cells");
  LayerIndex before = model.add(2, 40, {});
  LayerIndex last = model.add(2, 40, {before});
  for (std::uint32_t cell = 0; cell < 6; ++cell) {
    std::vector<LayerIndex> states{before, last};
    std::vector<LayerIndex> made;
    for (std::uint32_t block = 0; block < 5; ++block) {
      std::vector<LayerIndex> pair;
      for (std::uint32_t side = 0; side < 2; ++side)
        pair.push_back(model.add(1, 10, {states[model.random() % states.size()]}));
      made.push_back(model.add(0.1, 10, pair));
      states.push_back(made.back());
    }
    before = std::exchange(last, model.add(0.2, 50, made));
  }
  model.add(1, 1, {last});
  return model.finish();
}

BranchedModel gated_unet() {
  ModelWriter model("U-Net with gates");
  std::vector<LayerIndex> gates;
  LayerIndex last = model.add(4, 200, {});
  for (std::uint32_t level = 0; level < 4; ++level) {
    const double megabytes = 200.0 / (1U << level);
    last = model.add_row(2, 6, megabytes, last);
    gates.push_back(model.add_row(2, 1.5, megabytes / 4, last));
    last = model.add(0.5, megabytes / 4, {last});
  }
  last = model.add_row(2, 6, 12, last);
  for (std::uint32_t level = 4; level-- > 0;) {
    last = model.add(1, 200.0 / (1U << level), {last, gates[level]});
    last = model.add_row(2, 6, 200.0 / (1U << level), last);
  }
  model.add(1, 2, {last});
  return model.finish();
}

BranchedModel experts() {
  ModelWriter model("3 × 24 experts");
  LayerIndex last = model.add(1, 20, {});
  for (std::uint32_t block = 0; block < 3; ++block) {
    std::vector<LayerIndex> outputs;
    for (std::uint32_t i = 0; i < 24; ++i)
      outputs.push_back(model.add(0.5 + 0.25 * static_cast<double>(i % 7), 4, {last}));
    last = model.add(0.5, 20, outputs);
  }
  return model.finish();
}

}  // namespace

std::vector<BranchedModel> branched_models() {
  return {two_towers(), inception(), nas_cells(), gated_unet(), experts()};
}

}  // namespace spillway
