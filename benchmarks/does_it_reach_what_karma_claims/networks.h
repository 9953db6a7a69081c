#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

namespace karma_networks {

/// A network with what one image of its data set looks like.
struct Network {
  torch::nn::Sequential layers;
  std::vector<std::int64_t> image;   ///< Channels, height, width.
  std::vector<std::int64_t> target;  ///< Of an image: empty for one class, or height and width.
  std::int64_t classes = 0;
};

/// The names that `make_network` knows.
const std::vector<std::string>& network_names();

/// A network with random weights, in the form of its paper or of its usual implementation:
/// * resnet-50, resnet-200 (He et al., CVPR 2016): bottlenecks with the stride in their 3x3
///   convolution, as in torchvision; ImageNet.
/// * resnet-1001 (He et al., ECCV 2016): 333 pre-activation bottlenecks; CIFAR-10.
/// * wrn-28-10 (Zagoruyko and Komodakis, BMVC 2016), without dropout; CIFAR-10.
/// * vgg-16 (Simonyan and Zisserman, ICLR 2015), configuration D, without batch-norm; ImageNet.
/// * u-net (Ronneberger et al., MICCAI 2015): unpadded convolutions, tiles of 572 x 572; ssTEM.
/// Throws `trainer::BadInput` for another name.
Network make_network(const std::string& name);

/// Of the U-Net alone: [N, 1, 572, 572] to [N, 2, 388, 388].
class UNetImpl : public torch::nn::Module {
 public:
  UNetImpl();
  torch::Tensor forward(torch::Tensor x);

 private:
  static constexpr int kLevels = 4;  ///< Halvings of the resolution.
  std::vector<torch::nn::Sequential> down_;
  std::vector<torch::nn::Sequential> up_;
  std::vector<torch::nn::ConvTranspose2d> enlarge_;
  torch::nn::Sequential bottom_;
  torch::nn::Conv2d head_{nullptr};
};
TORCH_MODULE(UNet);

}  // namespace karma_networks
