#include "photo_net/residual_net.h"

namespace photo_net {
namespace {

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;

// A batch-norm follows and shifts each channel, so a bias would be of no use.
Conv2d convolution(std::int64_t in, std::int64_t out) {
  return Conv2d(Conv2dOptions(in, out, 3).padding(1).bias(false));
}

class ResidualBlockImpl : public torch::nn::Module {
 public:
  explicit ResidualBlockImpl(std::int64_t width) {
    first_ = register_module("first", convolution(width, width));
    first_norm_ = register_module("first_norm", BatchNorm2d(width));
    second_ = register_module("second", convolution(width, width));
    second_norm_ = register_module("second_norm", BatchNorm2d(width));
  }

  // Backward of relu needs its result only, and that of batch-norm its input: both results can be
  // overwritten in place, which saves three copies of the photograph per block.
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = first_norm_(first_(x)).relu_();
    y = second_norm_(second_(y));
    y += x;
    return y.relu_();
  }

 private:
  Conv2d first_{nullptr};
  Conv2d second_{nullptr};
  BatchNorm2d first_norm_{nullptr};
  BatchNorm2d second_norm_{nullptr};
};
TORCH_MODULE(ResidualBlock);

}  // namespace

ResidualNetImpl::ResidualNetImpl(const ResidualNetOptions& options) {
  layers_->push_back(convolution(options.input_channels, options.width));
  layers_->push_back(BatchNorm2d(options.width));
  layers_->push_back(torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)));
  for (std::int64_t block = 0; block < options.blocks; ++block)
    layers_->push_back(ResidualBlock(options.width));
  layers_->push_back(Conv2d(Conv2dOptions(options.width, options.output_channels, 3).padding(1)));
  register_module("layers", layers_);
}

torch::Tensor ResidualNetImpl::forward(const torch::Tensor& photos) {
  return layers_->forward(photos);
}

}  // namespace photo_net
