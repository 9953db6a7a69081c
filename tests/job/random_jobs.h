#pragma once

#include <random>

#include "even_jobs.h"

namespace spillway::job {

/// Draws numbers, the same for each seed on every machine.
class Draw {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed) {}

  std::uint32_t among(std::uint32_t least, std::uint32_t most) {
    return least + static_cast<std::uint32_t>(random_() % (most - least + 1));
  }
  bool one_in(std::uint32_t count) { return among(1, count) == 1; }

 private:
  std::mt19937 random_;
};

/// Layers of any size, some of them frozen, in a chain or with branches that may run in another
/// order; with or without links, memory reduction and room.
inline JobRequest random_job(std::uint32_t seed, std::uint32_t most_layers = 10) {
  Draw draw(seed);
  const std::uint32_t layers = draw.among(3, most_layers);
  const std::uint32_t ranks = draw.among(1, 4);
  JobRequest request = even_job(layers, draw.one_in(4) ? 2 * ranks : ranks, 0);
  request.batch = draw.one_in(3) ? 4 * draw.among(1, 3) : draw.among(1, 8);
  partition::ModelChain& chain = request.chain;
  for (partition::ModelLayer& layer : chain.layers) {
    layer.forward_seconds = 0.1 * draw.among(0, 20);
    layer.backward_seconds = 0.1 * draw.among(0, 40);
    layer.stash = Bytes(draw.among(0, 20) * kMega);
    if (draw.one_in(3)) layer.recompute.clear();
    if (draw.one_in(6)) layer.parameters = Bytes();
  }
  if (draw.one_in(8)) chain.layers[draw.among(0, layers - 1)].forward_seconds = 10.0;
  const std::uint32_t frozen = draw.one_in(8) ? layers : draw.among(0, 2);
  for (std::uint32_t i = 0; i < frozen; ++i) chain.layers[i].is_frozen = true;
  if (draw.one_in(8)) chain.layers[draw.among(0, layers - 1)].is_frozen = true;
  if (draw.one_in(3)) {  // Each layer reads one before it, and the last one all that nobody read.
    chain.may_reorder = true;
    chain.borders.clear();
    std::vector<char> is_read(layers, 0);
    for (partition::LayerIndex i = 1; i + 1 < layers; ++i) {
      const partition::LayerIndex input = draw.among(i < 3 ? 0 : i - 3, i - 1);
      chain.borders.push_back({input, {i}, Bytes(kMega)});
      is_read[input] = 1;
    }
    for (partition::LayerIndex i = 0; i + 1 < layers; ++i)
      if (is_read[i] == 0) chain.borders.push_back({i, {layers - 1}, Bytes(kMega)});
  }
  if (draw.one_in(2))
    request.link = {0.1 * draw.among(0, 3), TransferRate(1e5 * draw.among(1, 100))};
  if (draw.one_in(2)) request.swap_rate = TransferRate(1e6 * draw.among(1, 20));
  if (draw.one_in(2)) request.device_memory = Bytes(draw.among(40, 200) * kMega);
  request.update_seconds = draw.one_in(2) ? 0.0 : 0.5 * draw.among(0, 20);
  return request;
}

}  // namespace spillway::job
