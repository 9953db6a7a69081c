#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

namespace brain_unet {

struct UnetOptions {
  std::int64_t classes = 2;
  std::int64_t width = 16;          ///< Channels of the first level; each level has twice the last.
  std::int64_t depth = 3;           ///< Levels; each has half the resolution of the last.
  std::int64_t convs = 3;           ///< Convolutions per level on the way down, and again up.
  std::int64_t stem = 1;            ///< 2: the first level already has half the resolution.
  std::string kernel = "factored";  ///< full: 3x3x3. factored: 1x3x3, then 3x1x1.
  std::string norm = "batch";       ///< batch, instance or group.
  /// relu (in place) or leaky_relu (keeps its input).
  std::string activation = "leaky_relu";
  std::string layout = "channels_last";  ///< channels_last or contiguous.

  /// Edges of the input must be multiples of this.
  std::int64_t edge_multiple() const { return stem << (depth - 1); }
};

/// The 3-D U-Net: a contracting path, an expanding path, and skip connections between equal levels.
class UnetImpl : public torch::nn::Module {
 public:
  explicit UnetImpl(const UnetOptions& options);

  /// [N, 1, D, H, W] to the logits [N, classes, D, H, W].
  torch::Tensor forward(const torch::Tensor& image);

 private:
  torch::MemoryFormat layout_;
  torch::nn::Conv3d stem_{nullptr};  // null when the first level has the resolution of the input
  std::vector<torch::nn::Sequential> contracting_;
  std::vector<torch::nn::Conv3d> narrowing_;
  std::vector<torch::nn::Sequential> expanding_;
  torch::nn::Conv3d head_{nullptr};
};
TORCH_MODULE(Unet);

}  // namespace brain_unet
