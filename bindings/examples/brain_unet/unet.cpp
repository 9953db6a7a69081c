#include "brain_unet/unet.h"

#include <algorithm>

namespace brain_unet {
namespace {

namespace F = torch::nn::functional;
using torch::nn::Conv3d;
using torch::nn::Conv3dOptions;
using torch::nn::Sequential;
using Kernel = std::vector<std::int64_t>;

void add_norm(Sequential& layers, const std::string& norm, std::int64_t channels) {
  using namespace torch::nn;
  if (norm == "batch")
    layers->push_back(BatchNorm3d(channels));
  else if (norm == "instance")
    layers->push_back(InstanceNorm3d(InstanceNorm3dOptions(channels).affine(true)));
  else if (norm == "group")
    layers->push_back(GroupNorm(GroupNormOptions(channels % 8 == 0 ? 8 : 1, channels)));
  else
    throw std::invalid_argument("unknown norm '" + norm + "'");
}

// The normalisation adds a constant per channel itself, so the convolution before it has no bias.
void add_convolution(Sequential& layers, const UnetOptions& options, std::int64_t in,
                     std::int64_t out, const Kernel& kernel) {
  Kernel padding;
  for (const std::int64_t edge : kernel) padding.push_back(edge / 2);
  layers->push_back(Conv3d(Conv3dOptions(in, out, kernel).padding(padding).bias(false)));
  add_norm(layers, options.norm, out);
  if (options.activation == "leaky_relu")
    layers->push_back(torch::nn::LeakyReLU());
  else
    layers->push_back(torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)));
}

Sequential make_level(const UnetOptions& options, std::int64_t in, std::int64_t out) {
  Sequential layers;
  for (std::int64_t conv = 0; conv < options.convs; ++conv) {
    const std::int64_t from = conv == 0 ? in : out;
    if (options.kernel == "factored") {
      add_convolution(layers, options, from, out, {1, 3, 3});
      add_convolution(layers, options, out, out, {3, 1, 1});
    } else {
      add_convolution(layers, options, from, out, {3, 3, 3});
    }
  }
  return layers;
}

torch::Tensor twice_as_fine(const torch::Tensor& coarse) {
  return F::interpolate(coarse, F::InterpolateFuncOptions()
                                    .scale_factor(std::vector<double>{2.0, 2.0, 2.0})
                                    .mode(torch::kNearest));
}

}  // namespace

UnetImpl::UnetImpl(const UnetOptions& options) {
  std::int64_t in = 1;
  if (options.stem > 1) {
    stem_ = register_module(
        "stem", Conv3d(Conv3dOptions(1, options.width, options.stem).stride(options.stem)));
    in = options.width;
  }
  for (std::int64_t level = 0; level < options.depth; ++level) {
    const std::int64_t channels = options.width << level;
    contracting_.push_back(register_module("contracting" + std::to_string(level),
                                           make_level(options, in, channels)));
    in = channels;
  }
  for (std::int64_t level = options.depth - 2; level >= 0; --level) {
    const std::int64_t channels = options.width << level;
    const std::string number = std::to_string(level);
    narrowing_.push_back(register_module("narrowing" + number,
                                         Conv3d(Conv3dOptions(2 * channels, channels, 1))));
    expanding_.push_back(register_module("expanding" + number,
                                         make_level(options, 2 * channels, channels)));
  }
  head_ = register_module("head", Conv3d(Conv3dOptions(options.width, options.classes, 1)));
}

torch::Tensor UnetImpl::forward(const torch::Tensor& image) {
  torch::Tensor x = stem_ ? stem_->forward(image) : image;
  std::vector<torch::Tensor> skips;
  for (std::size_t level = 0; level < contracting_.size(); ++level) {
    if (level > 0) x = torch::max_pool3d(x, 2);
    x = contracting_[level]->forward(x);
    skips.push_back(x);
  }
  skips.pop_back();  // The lowest level has nobody to skip to.
  for (std::size_t level = 0; level < expanding_.size(); ++level) {
    // Channels are halved before the volume grows: the fine tensor is the expensive one.
    x = twice_as_fine(narrowing_[level]->forward(x));
    x = expanding_[level]->forward(torch::cat({skips.back(), x}, 1));
    skips.pop_back();
  }
  x = head_->forward(x);
  if (!stem_) return x;
  const std::vector<std::int64_t> shape(image.sizes().begin() + 2, image.sizes().end());
  return F::interpolate(
      x, F::InterpolateFuncOptions().size(shape).mode(torch::kTrilinear).align_corners(false));
}

}  // namespace brain_unet
