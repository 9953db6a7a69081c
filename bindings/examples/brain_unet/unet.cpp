#include "brain_unet/unet.h"

#include <algorithm>

namespace brain_unet {
namespace {

namespace F = torch::nn::functional;
using torch::nn::Conv3d;
using torch::nn::Conv3dOptions;
using torch::nn::Sequential;
using Kernel = std::vector<std::int64_t>;

torch::nn::AnyModule make_norm(const std::string& norm, std::int64_t channels) {
  using namespace torch::nn;
  if (norm == "batch") return AnyModule(BatchNorm3d(channels));
  if (norm == "instance")
    return AnyModule(InstanceNorm3d(InstanceNorm3dOptions(channels).affine(true)));
  if (norm == "group")
    return AnyModule(GroupNorm(GroupNormOptions(channels % 8 == 0 ? 8 : 1, channels)));
  throw std::invalid_argument("unknown norm '" + norm + "'");
}

torch::MemoryFormat layout_of(const UnetOptions& options) {
  return options.layout == "channels_last" ? torch::MemoryFormat::ChannelsLast3d
                                           : torch::MemoryFormat::Contiguous;
}

/// Convolution, normalisation, activation.
class ConvolutionImpl : public torch::nn::Module {
 public:
  ConvolutionImpl(const UnetOptions& options, std::int64_t in, std::int64_t out,
                  const Kernel& kernel)
      : layout_(layout_of(options)), leaky_(options.activation == "leaky_relu") {
    Kernel padding;
    for (const std::int64_t edge : kernel) padding.push_back(edge / 2);
    // The normalisation shifts each channel, so a bias before it would be of no use.
    const auto convolution = Conv3dOptions(in, out, kernel).padding(padding).bias(false);
    convolution_ = register_module("convolution", Conv3d(convolution));
    norm_ = make_norm(options.norm, out);
    register_module("norm", norm_.ptr());
  }

  torch::Tensor forward(const torch::Tensor& x) {
    // Convolutions with few channels ignore the layout of their input. Here it is made right again.
    const torch::Tensor y = norm_.forward(convolution_->forward(x).contiguous(layout_));
    return leaky_ ? torch::leaky_relu(y) : y.relu_();
  }

 private:
  torch::MemoryFormat layout_;
  bool leaky_;
  Conv3d convolution_{nullptr};
  torch::nn::AnyModule norm_;
};
TORCH_MODULE(Convolution);

Sequential make_level(const UnetOptions& options, std::int64_t in, std::int64_t out) {
  const bool factored = options.kernel == "factored";
  Sequential level;
  for (std::int64_t number = 0; number < options.convs; ++number) {
    const std::int64_t from = number == 0 ? in : out;
    level->push_back(Convolution(options, from, out, factored ? Kernel{1, 3, 3} : Kernel{3, 3, 3}));
    if (factored) level->push_back(Convolution(options, out, out, Kernel{3, 1, 1}));
  }
  return level;
}

torch::Tensor twice_as_fine(const torch::Tensor& coarse) {
  return F::interpolate(coarse, F::InterpolateFuncOptions()
                                    .scale_factor(std::vector<double>{2.0, 2.0, 2.0})
                                    .mode(torch::kNearest));
}

}  // namespace

UnetImpl::UnetImpl(const UnetOptions& options) : layout_(layout_of(options)) {
  std::int64_t in = 1;
  if (options.stem > 1) {
    stem_ = register_module(
        "stem", Conv3d(Conv3dOptions(1, options.width, options.stem).stride(options.stem)));
    in = options.width;
  }
  for (std::int64_t level = 0; level < options.depth; ++level) {
    const std::int64_t channels = options.width << level;
    contracting_.push_back(
        register_module("contracting" + std::to_string(level), make_level(options, in, channels)));
    in = channels;
  }
  for (std::int64_t level = options.depth - 2; level >= 0; --level) {
    const std::int64_t channels = options.width << level;
    const std::string number = std::to_string(level);
    narrowing_.push_back(
        register_module("narrowing" + number, Conv3d(Conv3dOptions(2 * channels, channels, 1))));
    expanding_.push_back(
        register_module("expanding" + number, make_level(options, 2 * channels, channels)));
  }
  head_ = register_module("head", Conv3d(Conv3dOptions(options.width, options.classes, 1)));
}

torch::Tensor UnetImpl::forward(const torch::Tensor& image) {
  torch::Tensor x = stem_ ? stem_->forward(image).contiguous(layout_) : image;
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
