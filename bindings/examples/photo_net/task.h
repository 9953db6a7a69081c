#pragma once

#include <torch/torch.h>

#include <string>

namespace photo_net {

/// What the network sees and what it should make of it.
struct Example {
  torch::Tensor input;
  torch::Tensor target;
};

/// A task that needs nothing but photographs: a part of each is hidden and to be restored.
struct Task {
  std::string name = "colourise";  ///< colourise, denoise or super_resolve
  double noise = 0.1;              ///< Of denoise: standard deviation; white is 1.

  std::int64_t input_channels() const { return name == "colourise" ? 1 : 3; }
  std::int64_t target_channels() const { return name == "colourise" ? 2 : 3; }

  /// Hides a part of `photos`, [N, 3, H, W] with values from 0 to 1.
  Example hide(const torch::Tensor& photos) const;
};

}  // namespace photo_net
