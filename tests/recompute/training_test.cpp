// Whole training steps, of which every operator that can is run again at once: the trainer must not
// notice.

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>

#include <functional>
#include <vector>

#include "checked_calls.h"

namespace spillway::recompute {
namespace {

using at::Tensor;

using Loss = std::function<Tensor(const std::vector<Tensor>& weights)>;

Tensor weight(at::IntArrayRef sizes) { return (at::randn(sizes) * 0.2).requires_grad_(); }

void descend(std::vector<Tensor>& weights) {
  const at::NoGradGuard no_grad;
  for (Tensor& one : weights) {
    one.add_(one.grad(), -0.05);
    one.mutable_grad() = Tensor();
  }
}

void train(const Loss& loss, std::vector<Tensor>& weights) {
  for (int step = 0; step < 2; ++step) {
    loss(weights).backward();
    descend(weights);
  }
}

/// Trains twice from the same start, once with all operators checked.
void check(const Loss& loss, const std::function<std::vector<Tensor>()>& start) {
  PagedTable::instance();
  at::manual_seed(3);
  std::vector<Tensor> plain = start();
  train(loss, plain);

  const auto engine = make_engine();
  CheckedCalls calls(*engine);
  at::manual_seed(3);
  std::vector<Tensor> checked = start();
  {
    const Watched watched(calls);
    train(loss, checked);
  }
  for (std::size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(at::equal(plain[i], checked[i])) << "weight " << i;
  EXPECT_GE(calls.replayed.size(), 12u);
}

TEST(Training, ConvolutionalNetWithNormsAndDropout) {
  Tensor mean = at::zeros({16});
  Tensor variance = at::ones({16});
  const auto start = [&] {
    mean.zero_();
    variance.fill_(1);
    return std::vector<Tensor>{weight({16, 8, 3, 3}), weight({16}), weight({16}),
                               weight({16, 16, 3, 3}), weight({10, 16})};
  };
  check(
      [&](const std::vector<Tensor>& w) {
        const Tensor image = at::randn({4, 8, 16, 16});
        Tensor x = at::conv2d(image, w[0], {}, 1, 1);
        x = at::batch_norm(x, w[1], w[2], mean, variance, true, 0.1, 1e-5, false).relu_();
        x = at::max_pool2d(x, 2);
        x = at::dropout(x + at::conv2d(x, w[3], {}, 1, 1), 0.3, true);
        x = at::upsample_bilinear2d(x, {16, 16}, false);
        x = at::linear(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1), w[4]);
        return at::cross_entropy_loss(x, at::arange(4));
      },
      start);
}

TEST(Training, TransformerBlockUnderAutocast) {
  const auto start = [] {
    return std::vector<Tensor>{weight({50, 32}),  weight({96, 32}),  weight({32, 32}),
                               weight({128, 32}), weight({32, 128}), weight({32})};
  };
  const auto loss = [](const std::vector<Tensor>& w) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const Tensor tokens = at::randint(0, 50, {2, 64}, at::kLong);
    Tensor x = at::embedding(w[0], tokens);
    const Tensor normed = at::layer_norm(x, {32}, w[5]);
    const auto parts = at::linear(normed, w[1]).view({2, 64, 3, 4, 8}).permute({2, 0, 3, 1, 4});
    const Tensor seen = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, true);
    x = x + at::linear(seen.transpose(1, 2).reshape({2, 64, 32}), w[2]);
    x = x + at::linear(at::gelu(at::linear(x, w[3])), w[4]);
    const Tensor scores = at::matmul(x, w[0].t()).flatten(0, 1);
    const Tensor result = at::cross_entropy_loss(scores, tokens.flatten().roll(-1));
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return result;
  };
  check(loss, start);
}

}  // namespace
}  // namespace spillway::recompute
