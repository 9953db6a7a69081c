#include "networks.h"

namespace karma_networks {
namespace {

using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;

torch::nn::Sequential two_convolutions(std::int64_t in, std::int64_t out) {
  const auto relu = [] { return torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)); };
  return torch::nn::Sequential(Conv2d(Conv2dOptions(in, out, 3)), relu(),
                               Conv2d(Conv2dOptions(out, out, 3)), relu());
}

/// The middle of `large`, as large as `small`: unpadded convolutions have lost the border.
torch::Tensor cropped(const torch::Tensor& large, const torch::Tensor& small) {
  const std::int64_t rows = small.size(2);
  const std::int64_t columns = small.size(3);
  return large.narrow(2, (large.size(2) - rows) / 2, rows)
      .narrow(3, (large.size(3) - columns) / 2, columns);
}

}  // namespace

UNetImpl::UNetImpl() {
  constexpr std::int64_t kClasses = 2;
  std::int64_t in = 1;
  std::int64_t width = 64;
  for (int level = 0; level < kLevels; ++level, in = width, width *= 2)
    down_.push_back(register_module("down" + std::to_string(level), two_convolutions(in, width)));
  bottom_ = register_module("bottom", two_convolutions(in, width));
  for (int level = 0; level < kLevels; ++level, width /= 2) {
    const std::string name = std::to_string(level);
    enlarge_.push_back(register_module(
        "enlarge" + name, torch::nn::ConvTranspose2d(
                              torch::nn::ConvTranspose2dOptions(width, width / 2, 2).stride(2))));
    up_.push_back(register_module("up" + name, two_convolutions(width, width / 2)));
  }
  head_ = register_module("head", Conv2d(Conv2dOptions(width, kClasses, 1)));
}

torch::Tensor UNetImpl::forward(torch::Tensor x) {
  std::vector<torch::Tensor> skipped;
  for (auto& convolutions : down_) {
    skipped.push_back(convolutions->forward(x));
    x = torch::max_pool2d(skipped.back(), 2);
  }
  x = bottom_->forward(x);
  for (std::size_t level = 0; level < up_.size(); ++level) {
    x = enlarge_[level]->forward(x);
    x = torch::cat({cropped(skipped.back(), x), x}, 1);
    skipped.pop_back();
    x = up_[level]->forward(x);
  }
  return head_->forward(x);
}

}  // namespace karma_networks
