// What networks are made of gives on the emulated device what it gives on the CPU, forward and
// backward.
#include <ATen/ATen.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include "compared.h"

namespace spillway::emulated {
namespace {

at::Tensor attention(const Tensors& x, double dropout, bool is_causal) {
  return at::scaled_dot_product_attention(x[0], x[1], x[2], std::nullopt, dropout, is_causal);
}

Tensors queries(at::IntArrayRef sizes = {2, 4, 16, 8}) {
  return {drawn(sizes), drawn(sizes), drawn(sizes)};
}

Tensors halves(const Tensors& all) {
  Tensors result;
  for (const at::Tensor& tensor : all) result.push_back(tensor.to(at::kBFloat16));
  return result;
}

TEST(NetworkSheet, Convolutions) {
  expect_equal({
      {"conv1d",
       [](const Tensors& x) -> Tensors { return {at::conv1d(x[0], x[1], {}, 1, 1)}; },
       {drawn({2, 3, 20}), drawn({4, 3, 3})}},
      {"conv2d",
       [](const Tensors& x) -> Tensors { return {at::conv2d(x[0], x[1], x[2], 2, 1)}; },
       {drawn({2, 3, 20, 20}), drawn({8, 3, 3, 3}), drawn({8})}},
      {"conv2d, channels last",
       [](const Tensors& x) -> Tensors {
         return {at::conv2d(x[0].contiguous(at::MemoryFormat::ChannelsLast), x[1])};
       },
       {drawn({2, 8, 20, 20}), drawn({8, 8, 3, 3})}},
      {"conv2d, a group a channel",
       [](const Tensors& x) -> Tensors {
         return {at::conv2d(x[0], x[1], {}, 1, at::IntArrayRef{0}, 1, 8)};
       },
       {drawn({2, 8, 20, 20}), drawn({8, 1, 3, 3})}},
      {"conv2d, groups",
       [](const Tensors& x) -> Tensors { return {at::conv2d(x[0], x[1], x[2], 1, 1, 1, 4)}; },
       {drawn({2, 8, 10, 10}), drawn({8, 2, 3, 3}), drawn({8})}},
      {"conv3d",
       [](const Tensors& x) -> Tensors {
         return {at::conv3d(x[0], x[1], {}, 1, at::IntArrayRef{0}, 2)};
       },
       {drawn({1, 3, 12, 12, 12}), drawn({4, 3, 3, 3, 3})}},
      {"conv_transpose2d",
       [](const Tensors& x) -> Tensors { return {at::conv_transpose2d(x[0], x[1], {}, 2)}; },
       {drawn({1, 3, 12, 12}), drawn({3, 4, 3, 3})}},
      {"conv_transpose3d",
       [](const Tensors& x) -> Tensors { return {at::conv_transpose3d(x[0], x[1], x[2], 2)}; },
       {drawn({1, 4, 5, 5, 5}), drawn({4, 3, 2, 2, 2}), drawn({3})}},
  });
}

Tensors normalized_by_batch(const Tensors& x, bool is_training) {
  const at::Tensor mean = at::zeros({8}, x[0].options());
  const at::Tensor variance = at::ones({8}, x[0].options());
  const at::Tensor result =
      at::batch_norm(x[0], x[1], x[2], mean, variance, is_training, 0.1, 1e-5, true);
  return {result, mean, variance};
}

TEST(NetworkSheet, Norms) {
  const Tensors affine = {drawn({4, 8, 6, 6}), drawn({8}), drawn({8})};
  const Tensors last = {drawn({4, 16}), drawn({16}), drawn({16})};
  expect_equal({
      {"batch_norm in training", [](const Tensors& x) { return normalized_by_batch(x, true); },
       affine},
      {"batch_norm", [](const Tensors& x) { return normalized_by_batch(x, false); }, affine},
      {"group_norm",
       [](const Tensors& x) -> Tensors { return {at::group_norm(x[0], 4, x[1], x[2])}; }, affine},
      {"instance_norm",
       [](const Tensors& x) -> Tensors {
         return {at::instance_norm(x[0], x[1], x[2], {}, {}, true, 0.1, 1e-5, true)};
       },
       affine},
      {"layer_norm",
       [](const Tensors& x) -> Tensors { return {at::layer_norm(x[0], {16}, x[1], x[2])}; }, last},
      {"rms_norm", [](const Tensors& x) -> Tensors { return {at::rms_norm(x[0], {16}, x[1])}; },
       last},
      {"rms_norm without weight",
       [](const Tensors& x) -> Tensors { return {at::rms_norm(x[0], {16}, std::nullopt, 1e-3)}; },
       last},
      {"rms_norm of two dimensions",
       [](const Tensors& x) -> Tensors {
         return {at::rms_norm(x[0], {3, 16}, x[1])};
       },
       {drawn({4, 3, 16}), drawn({3, 16})}},
      {"rms_norm of bf16",
       [](const Tensors& x) -> Tensors { return {at::rms_norm(x[0], {16}, x[1])}; },
       halves({last[0], last[1]})},
      {"weight_norm",
       [](const Tensors& x) -> Tensors { return {at::_weight_norm(x[0], x[1], 0)}; },
       {drawn({4, 5}), drawn({4, 1})}},
  });
}

TEST(NetworkSheet, PoolsAndSamples) {
  expect_equal({
      {"max_pool2d",
       [](const Tensors& x) -> Tensors { return {at::max_pool2d(x[0], 2)}; },
       {drawn({2, 4, 8, 8})}},
      {"max_pool3d",
       [](const Tensors& x) -> Tensors { return {at::max_pool3d(x[0], 2)}; },
       {drawn({2, 4, 8, 8, 8})}},
      {"avg_pool3d",
       [](const Tensors& x) -> Tensors { return {at::avg_pool3d(x[0], 2)}; },
       {drawn({2, 4, 8, 8, 8})}},
      {"adaptive_avg_pool2d",
       [](const Tensors& x) -> Tensors {
         return {at::adaptive_avg_pool2d(x[0], {2, 3})};
       },
       {drawn({2, 4, 8, 8})}},
      {"upsample",
       [](const Tensors& x) -> Tensors {
         return {at::upsample_bilinear2d(x[0], {10, 18}, false),
                 at::upsample_nearest2d(x[0], {10, 18})};
       },
       {drawn({1, 2, 5, 9})}},
      {"upsample_trilinear3d",
       [](const Tensors& x) -> Tensors {
         return {at::upsample_trilinear3d(x[0], {8, 8, 8}, false)};
       },
       {drawn({1, 2, 4, 4, 4})}},
      {"grid_sampler of cuDNN",
       [](const Tensors& x) -> Tensors { return {at::grid_sampler(x[0], x[1], 0, 0, true)}; },
       {drawn({1, 2, 5, 9}), drawn({1, 4, 4, 2})}},
      {"grid_sampler",
       [](const Tensors& x) -> Tensors { return {at::grid_sampler(x[0], x[1], 0, 0, false)}; },
       {drawn({1, 2, 5, 9}), drawn({1, 4, 4, 2})}},
      {"embedding_bag",
       [](const Tensors& x) -> Tensors {
         return {std::get<0>(at::embedding_bag(x[0], x[1], at::arange(0, 28, 7, x[1].options())))};
       },
       {drawn({20, 8}), drawn_integers(20, {28})}},
  });
}

at::Tensor ctc(const Tensors& x, at::ScalarType type, at::Device device) {
  const at::Tensor targets = at::ones({6}, at::TensorOptions(type)).to(device);
  const std::vector<std::int64_t> inputs = {10, 10};
  const std::vector<std::int64_t> lengths = {3, 3};
  return at::ctc_loss(at::log_softmax(x[0], 2), targets, inputs, lengths, 0, 1, true);
}

TEST(NetworkSheet, Losses) {
  expect_equal({
      {"cross_entropy",
       [](const Tensors& x) -> Tensors {
         return {at::cross_entropy_loss(x[0], x[1], {}, 1, -100, 0.1)};
       },
       {drawn({4, 9}), drawn_integers(9, {4})}},
      {"cross_entropy of images",
       [](const Tensors& x) -> Tensors {
         return {at::cross_entropy_loss(x[0], x[1], x[2].detach().abs())};
       },
       {drawn({2, 3, 5, 5}), drawn_integers(3, {2, 5, 5}), drawn({3})}},
      {"mse, smooth_l1, huber",
       [](const Tensors& x) -> Tensors {
         return {at::mse_loss(x[0], x[1]), at::smooth_l1_loss(x[0], x[1]),
                 at::huber_loss(x[0], x[1])};
       },
       {drawn({5, 5}), drawn({5, 5})}},
      {"bce",
       [](const Tensors& x) -> Tensors {
         return {at::binary_cross_entropy_with_logits(x[0], x[1].detach().abs())};
       },
       {drawn({5}), drawn({5})}},
      {"kl_div",
       [](const Tensors& x) -> Tensors {
         return {at::kl_div(at::log_softmax(x[0], 1), at::softmax(x[1].detach(), 1))};
       },
       {drawn({5, 4}), drawn({5, 4})}},
      {"ctc",
       [](const Tensors& x) -> Tensors { return {ctc(x, at::kLong, x[0].device())}; },
       {drawn({10, 2, 5})}},
      {"ctc of cuDNN",
       [](const Tensors& x) -> Tensors { return {ctc(x, at::kInt, at::kCPU)}; },
       {drawn({10, 2, 5})}},
  });
}

TEST(NetworkSheet, Attention) {
  expect_equal({
      {"plain", [](const Tensors& x) -> Tensors { return {attention(x, 0, false)}; }, queries()},
      {"causal", [](const Tensors& x) -> Tensors { return {attention(x, 0, true)}; }, queries()},
      {"masked",
       [](const Tensors& x) -> Tensors {
         const at::Tensor mask = at::ones({16, 16}, x[0].options().dtype(at::kBool)).tril();
         return {at::scaled_dot_product_attention(x[0], x[1], x[2], mask)};
       },
       queries()},
      {"bf16", [](const Tensors& x) -> Tensors { return {attention(x, 0, true)}; },
       halves(queries())},
      {"dropout", [](const Tensors& x) -> Tensors { return {attention(x, 0.2, false)}; },
       queries()},
      {"dropout, causal", [](const Tensors& x) -> Tensors { return {attention(x, 0.2, true)}; },
       queries()},
      {"dropout, masked",
       [](const Tensors& x) -> Tensors {
         const at::Tensor mask = at::ones({16, 16}, x[0].options().dtype(at::kBool)).tril();
         return {at::scaled_dot_product_attention(x[0], x[1], x[2], mask, 0.2)};
       },
       queries()},
      {"dropout, bf16", [](const Tensors& x) -> Tensors { return {attention(x, 0.2, false)}; },
       halves(queries())},
  });
}

// LibTorch takes another kernel from 9.0 on, and has none of cuDNN's for the CPU.
TEST(NetworkSheet, AttentionInHalfPrecisionIsThatOfTheCapability) {
  int major = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  Tensors x;
  for (const at::Tensor& tensor : halves(queries())) x.push_back(tensor.cuda().requires_grad_());
  for (const double dropout : {0.0, 0.2})
    EXPECT_EQ(attention(x, dropout, true).grad_fn()->name(),
              major < 9 ? "ScaledDotProductFlashAttentionBackward0"
                        : "ScaledDotProductCudnnAttentionBackward0");
}

Tensors recurrent_inputs(std::int64_t gates, std::int64_t layers, std::int64_t directions) {
  constexpr std::int64_t kFeatures = 8;
  constexpr std::int64_t kHidden = 16;
  Tensors all = {drawn({3, 5, kFeatures}), drawn({layers * directions, 3, kHidden}),
                 drawn({layers * directions, 3, kHidden})};
  for (std::int64_t layer = 0; layer < layers; ++layer)
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      const std::int64_t in = layer == 0 ? kFeatures : kHidden * directions;
      all.push_back(drawn({gates * kHidden, in}).mul(0.2));
      all.push_back(drawn({gates * kHidden, kHidden}).mul(0.2));
      all.push_back(drawn({gates * kHidden}).mul(0.2));
      all.push_back(drawn({gates * kHidden}).mul(0.2));
    }
  return all;
}

Tensors lstm(const Tensors& x, std::int64_t layers, double dropout, bool is_bidirectional) {
  const Tensors weights(x.begin() + 3, x.end());
  auto [output, hidden, cells] =
      at::lstm(x[0], {x[1], x[2]}, weights, true, layers, dropout, true, is_bidirectional, true);
  return {output, hidden, cells};
}

Tensors gru(const Tensors& x, std::int64_t layers, double dropout, bool is_bidirectional) {
  const Tensors weights(x.begin() + 3, x.end());
  auto [output, hidden] =
      at::gru(x[0], x[1], weights, true, layers, dropout, true, is_bidirectional, true);
  return {output, hidden};
}

TEST(NetworkSheet, RecurrentNetworks) {
  expect_equal({
      {"lstm", [](const Tensors& x) { return lstm(x, 1, 0, false); }, recurrent_inputs(4, 1, 1)},
      {"lstm, both ways", [](const Tensors& x) { return lstm(x, 2, 0, true); },
       recurrent_inputs(4, 2, 2)},
      {"gru", [](const Tensors& x) { return gru(x, 1, 0, false); }, recurrent_inputs(3, 1, 1)},
      {"gru, both ways", [](const Tensors& x) { return gru(x, 2, 0, true); },
       recurrent_inputs(3, 2, 2)},
      {"rnn_tanh",
       [](const Tensors& x) -> Tensors {
         auto [output, hidden] = at::rnn_tanh(x[0], x[1], Tensors(x.begin() + 3, x.end()), true, 1,
                                              0, true, false, true);
         return {output, hidden};
       },
       recurrent_inputs(1, 1, 1)},
  });
}

TEST(NetworkSheet, RecurrentNetworksWithDropout) {
  // cuDNN draws a seed of its own, once a device.
  const Tensors some = recurrent_inputs(4, 2, 1);
  Tensors on_device;
  for (const at::Tensor& tensor : some) on_device.push_back(tensor.cuda());
  lstm(on_device, 2, 0.3, false);
  expect_equal({
      {"lstm", [](const Tensors& x) { return lstm(x, 2, 0.3, false); }, some},
      {"gru", [](const Tensors& x) { return gru(x, 2, 0.3, false); }, recurrent_inputs(3, 2, 1)},
  });
}

}  // namespace
}  // namespace spillway::emulated
