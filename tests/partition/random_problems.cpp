#include "random_problems.h"

#include <algorithm>
#include <random>

#include "spillway/base/error.h"

namespace spillway::partition {
namespace {

/// Small whole numbers. Own arithmetic, since distributions differ between libraries.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed * 2654435761U + 17) {}
  std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }
  bool hits(std::uint32_t percent) { return below(100) < percent; }

 private:
  std::mt19937_64 random_;
};

ModelLayer random_layer(Dice& dice, std::uint32_t index, const ProblemShape& shape) {
  ModelLayer layer;
  layer.name = "layer" + std::to_string(index);
  layer.forward_seconds = dice.below(8);
  layer.backward_seconds = dice.below(12);
  layer.parameters = Bytes(dice.below(10));
  layer.buffers = Bytes(layer.parameters.count() % 3);
  layer.static_ratio = 1 + dice.below(4);
  layer.stash = Bytes(dice.below(24));
  layer.working_peak = Bytes(dice.hits(40) ? dice.below(16) : 0);
  layer.is_frozen = shape.has_ties && dice.hits(index == 0 ? 30 : 10);
  for (std::uint32_t points = dice.below(3); points-- > 0;)
    layer.recompute.push_back(
        {static_cast<double>(dice.below(7)),
         Bytes(dice.below(static_cast<std::uint32_t>(layer.stash.count()) + 1))});
  return layer;
}

void add_borders(Dice& dice, ModelChain& chain) {
  const auto layers = static_cast<LayerIndex>(chain.layers.size());
  for (LayerIndex i = 0; i + 1 < layers; ++i)
    if (dice.hits(70)) chain.borders.push_back({i, {i + 1}, Bytes(dice.below(30))});
  for (std::uint32_t skips = dice.below(4); skips-- > 0;) {
    BorderTensor border{dice.below(layers - 1), {}, Bytes(dice.below(30))};
    for (std::uint32_t readers = 1 + dice.below(3); readers-- > 0;)
      border.consumers.push_back(border.producer + 1 + dice.below(layers - 1 - border.producer));
    chain.borders.push_back(border);
  }
}

void add_ties(Dice& dice, ModelChain& chain) {
  const auto layers = static_cast<LayerIndex>(chain.layers.size());
  for (std::uint32_t ties = dice.below(3); ties-- > 0;) {
    TiedWeights tie{{}, Bytes(1 + dice.below(6))};
    for (LayerIndex i = 0; i < layers; ++i)
      if (dice.hits(35)) tie.layers.push_back(i);
    if (tie.layers.size() < 2) continue;
    for (const LayerIndex layer : tie.layers) chain.layers[layer].parameters += tie.bytes;
    chain.ties.push_back(tie);
  }
  // Whatever is tied to whatever: all the same.
  for (const TiedWeights& tie : chain.ties) {
    for (const LayerIndex layer : tie.layers) {
      chain.layers[layer].is_frozen = false;
      chain.layers[layer].static_ratio = 3;
    }
  }
}

void add_devices(Dice& dice, PartitionProblem& problem, const ProblemShape& shape) {
  std::uint64_t total = 0;
  for (const ModelLayer& layer : problem.chain.layers)
    total += layer.stash.count() + layer.parameters.count() * 4;
  const std::uint64_t memory = 30 + total * (1 + dice.below(6)) / shape.stages;
  const bool can_swap = dice.hits(60);
  const TransferRate swap(8.0 / (1 + dice.below(8)));
  for (std::uint32_t i = 0; i < shape.stages; ++i) {
    StageDevice device;
    device.memory = Bytes(memory);
    if (can_swap) device.swap_rate = swap;
    if (shape.differ) {
      device.slowdown = 0.5 * (1 + dice.below(4));
      device.memory = Bytes(memory + dice.below(40));
      device.reserved = Bytes(dice.below(5));
    }
    device.held = {shape.differ ? 0.5 * (1 + dice.below(6)) : static_cast<double>(shape.stages - i),
                   shape.differ ? static_cast<double>(1 + dice.below(3)) : 1.0,
                   shape.differ ? 0.5 * (1 + i % 3) : 1.0};
    problem.devices.push_back(device);
  }
}

}  // namespace

PartitionProblem random_problem(std::uint64_t seed, const ProblemShape& shape) {
  Dice dice(seed);
  PartitionProblem problem;
  for (std::uint32_t i = 0; i < shape.layers; ++i)
    problem.chain.layers.push_back(random_layer(dice, i, shape));
  if (shape.has_borders) add_borders(dice, problem.chain);
  if (shape.has_ties) {
    add_ties(dice, problem.chain);
    const std::uint32_t first = dice.below(shape.layers);
    const std::uint32_t last = std::min(shape.layers - 1, first + dice.below(3));
    if (shape.layers - (last - first) >= shape.stages)
      problem.chain.together.push_back({first, last});
  }
  add_devices(dice, problem, shape);
  if (shape.has_links) {
    for (std::uint32_t i = 0; i + 1 < shape.stages; ++i) {
      const TransferRate rate(8.0 / dice.below(12));  // Unlimited, too.
      problem.links.push_back({0.5 * dice.below(4), rate});
    }
    problem.transfers_hide = dice.hits(50);
  }
  return problem;
}

PartitionProblem without_limits(PartitionProblem problem) {
  for (StageDevice& device : problem.devices) device.memory = kNoLimit;
  return problem;
}

void for_all_cuts(std::uint32_t units, std::uint32_t stages,
                  const std::function<void(const Cuts&)>& see) {
  Cuts cuts(stages + 1, units);
  const std::function<void(std::uint32_t)> choose = [&](std::uint32_t k) {
    if (k == stages) return see(cuts);
    for (cuts[k] = cuts[k - 1] + 1; cuts[k] + (stages - k) <= units; ++cuts[k]) choose(k + 1);
  };
  cuts[0] = 0;
  choose(1);
}

void for_random_costs(std::uint64_t count, const ProblemShape& shape,
                      const std::function<void(const SegmentCosts&, std::uint64_t)>& see) {
  for (std::uint64_t seed = 0; count > 0; ++seed) {
    PartitionProblem problem = random_problem(seed, shape);
    try {
      const SegmentCosts costs(std::move(problem));
      see(costs, seed);
      --count;
    } catch (const ConfigError&) {
      // A unit fits on no device.
    }
  }
}

}  // namespace spillway::partition
