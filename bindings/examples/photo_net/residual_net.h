#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace photo_net {

struct ResidualNetOptions {
  std::int64_t input_channels = 1;
  std::int64_t output_channels = 2;
  std::int64_t width = 16;  ///< Channels inside.
  std::int64_t blocks = 2;  ///< Residual blocks, of two convolutions each.
};

/// A residual network that keeps the resolution: every layer has as many pixels as the photograph.
class ResidualNetImpl : public torch::nn::Module {
 public:
  explicit ResidualNetImpl(const ResidualNetOptions& options);

  /// [N, input channels, H, W] to [N, output channels, H, W].
  torch::Tensor forward(const torch::Tensor& photos);

 private:
  torch::nn::Sequential layers_;
};
TORCH_MODULE(ResidualNet);

}  // namespace photo_net
