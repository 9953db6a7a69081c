#include "models.h"

#include <cmath>
#include <limits>

namespace spillway::emulated {
namespace {

namespace nn = torch::nn;

class ConvNet final : public Network {
 public:
  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = at::max_pool2d(norm1_(conv1_(input)).relu_(), 2);
    x = at::max_pool2d(norm2_(conv2_(x)).relu_(), 2);
    x = x + norm3_(conv3_(x)).relu_();
    return head_(dropout_(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1)));
  }

 private:
  nn::Conv2d conv1_ = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1)));
  nn::BatchNorm2d norm1_ = register_module("norm1", nn::BatchNorm2d(16));
  nn::Conv2d conv2_ =
      register_module("conv2", nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1).bias(false)));
  nn::BatchNorm2d norm2_ = register_module("norm2", nn::BatchNorm2d(32));
  nn::Conv2d conv3_ =
      register_module("conv3", nn::Conv2d(nn::Conv2dOptions(32, 32, 3).padding(1).groups(4)));
  nn::BatchNorm2d norm3_ = register_module("norm3", nn::BatchNorm2d(32));
  nn::Dropout dropout_ = register_module("dropout", nn::Dropout(0.1));
  nn::Linear head_ = register_module("head", nn::Linear(32, 10));
};

class PlainNet final : public Network {
 public:
  at::Tensor forward(const at::Tensor& input) override {
    return head_(conv2_(conv1_(input).relu()).relu().flatten(1));
  }

 private:
  nn::Conv2d conv1_ = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).stride(2)));
  nn::Conv2d conv2_ = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(8, 8, 3).stride(2)));
  nn::Linear head_ = register_module("head", nn::Linear(8 * 7 * 7, 10));
};

class VolumeBlock final : public Network {
 public:
  VolumeBlock(std::int64_t in, std::int64_t out)
      : conv1_(register_module("conv1", nn::Conv3d(nn::Conv3dOptions(in, out, 3).padding(1)))),
        norm1_(register_module("norm1",
                               nn::InstanceNorm3d(nn::InstanceNorm3dOptions(out).affine(true)))),
        conv2_(register_module("conv2", nn::Conv3d(nn::Conv3dOptions(out, out, 3).padding(1)))),
        norm2_(register_module("norm2", nn::BatchNorm3d(out))) {}

  at::Tensor forward(const at::Tensor& input) override {
    return at::leaky_relu(norm2_(conv2_(at::leaky_relu(norm1_(conv1_(input)), 0.01))), 0.01);
  }

 private:
  nn::Conv3d conv1_;
  nn::InstanceNorm3d norm1_;
  nn::Conv3d conv2_;
  nn::BatchNorm3d norm2_;
};

class UNet final : public Network {
 public:
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor fine = down1_->forward(input);
    const at::Tensor coarse = down2_->forward(at::max_pool3d(fine, 2));
    const at::Tensor smooth = at::upsample_trilinear3d(coarse, fine.sizes().slice(2), false);
    return head_(up_->forward(at::cat({fine, grow_(coarse) + smooth.narrow(1, 0, 8)}, 1)));
  }

 private:
  std::shared_ptr<VolumeBlock> down1_ =
      register_module("down1", std::make_shared<VolumeBlock>(1, 8));
  std::shared_ptr<VolumeBlock> down2_ =
      register_module("down2", std::make_shared<VolumeBlock>(8, 16));
  nn::ConvTranspose3d grow_ =
      register_module("grow", nn::ConvTranspose3d(nn::ConvTranspose3dOptions(16, 8, 2).stride(2)));
  std::shared_ptr<VolumeBlock> up_ = register_module("up", std::make_shared<VolumeBlock>(16, 8));
  nn::Conv3d head_ = register_module("head", nn::Conv3d(nn::Conv3dOptions(8, 3, 1)));
};

constexpr std::int64_t kWidth = 32;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kLetters = 64;
constexpr std::int64_t kLength = 32;
constexpr double kDropout = 0.1;

class Layer final : public Network {
 public:
  explicit Layer(AttentionForm form) : form_(form) {}

  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor x = input + dropout_(project_(attend(norm1_(input))));
    return x + dropout_(shrink_(at::gelu(widen_(norm2_(x)))));
  }

 private:
  at::Tensor attend(const at::Tensor& x) {
    const std::int64_t batch = x.size(0);
    const std::int64_t length = x.size(1);
    const at::Tensor all =
        mix_(x).view({batch, length, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    return weighted(all[0], all[1], all[2]).transpose(1, 2).reshape({batch, length, kWidth});
  }

  at::Tensor weighted(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
    if (form_ != AttentionForm::kExplicit) {
      const double dropout = form_ == AttentionForm::kFused ? 0.0 : kDropout;
      return at::scaled_dot_product_attention(query, key, value, {}, dropout, /*is_causal=*/true);
    }
    const at::Tensor scores =
        at::matmul(query, key.transpose(-2, -1)) / std::sqrt(double(query.size(-1)));
    const at::Tensor later =
        at::ones({query.size(-2), query.size(-2)}, query.options().dtype(at::kBool)).triu(1);
    const double none = -std::numeric_limits<double>::infinity();
    return at::matmul(dropout_(at::softmax(scores.masked_fill(later, none), -1)), value);
  }

  AttentionForm form_;
  nn::LayerNorm norm1_ = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Linear mix_ = register_module("mix", nn::Linear(kWidth, 3 * kWidth));
  nn::Linear project_ = register_module("project", nn::Linear(kWidth, kWidth));
  nn::LayerNorm norm2_ = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Linear widen_ = register_module("widen", nn::Linear(kWidth, 4 * kWidth));
  nn::Linear shrink_ = register_module("shrink", nn::Linear(4 * kWidth, kWidth));
  nn::Dropout dropout_ = register_module("dropout", nn::Dropout(kDropout));
};

class Gpt final : public Network {
 public:
  explicit Gpt(AttentionForm form)
      : first_(register_module("first", std::make_shared<Layer>(form))),
        second_(register_module("second", std::make_shared<Layer>(form))) {}

  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor places = at::arange(input.size(1), input.options());
    const at::Tensor x = letters_(input) + places_(places);
    return head_(norm_(second_->forward(first_->forward(x)))).flatten(0, 1);
  }

 private:
  nn::Embedding letters_ = register_module("letters", nn::Embedding(kLetters, kWidth));
  nn::Embedding places_ = register_module("places", nn::Embedding(kLength, kWidth));
  std::shared_ptr<Layer> first_;
  std::shared_ptr<Layer> second_;
  nn::LayerNorm norm_ = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Linear head_ = register_module("head", nn::Linear(kWidth, kLetters));
};

at::Tensor labels(std::int64_t kinds, at::IntArrayRef sizes, at::Generator& generator) {
  return at::randint(kinds, sizes, generator, at::TensorOptions(at::kLong));
}

}  // namespace

std::shared_ptr<Network> make_conv_net() { return std::make_shared<ConvNet>(); }
std::shared_ptr<Network> make_unet() { return std::make_shared<UNet>(); }
std::shared_ptr<Network> make_gpt(AttentionForm form) { return std::make_shared<Gpt>(form); }
std::shared_ptr<Network> make_plain_net() { return std::make_shared<PlainNet>(); }

Batch image_batch(at::Generator& generator) {
  return {at::randn({8, 3, 32, 32}, generator), labels(10, {8}, generator)};
}

Batch volume_batch(at::Generator& generator) {
  return {at::randn({1, 1, 16, 16, 16}, generator), labels(3, {1, 16, 16, 16}, generator)};
}

Batch text_batch(at::Generator& generator) {
  const at::Tensor text = labels(kLetters, {4, kLength + 1}, generator);
  return {text.narrow(1, 0, kLength).contiguous(), text.narrow(1, 1, kLength).reshape(-1)};
}

}  // namespace spillway::emulated
