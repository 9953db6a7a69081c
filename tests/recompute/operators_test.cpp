// Operators of networks.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <vector>

#include "operator_table.h"

namespace spillway::recompute {
namespace {

TEST_F(Operators, Convolutions) {
  const Tensor image = rnd({2, 8, 16, 16});
  check({
      {"aten::convolution",
       [&] {
         at::conv1d(rnd({2, 8, 200}), rnd({8, 8, 3}), rnd({8}));
       }},
      {"aten::convolution",
       [&] {
         at::conv2d(image, rnd({16, 8, 3, 3}), rnd({16}), 1, 1);
       }},
      {"aten::convolution",
       [&] {
         at::conv2d(image, rnd({16, 8, 1, 1}), {}, 2);
       }},
      {"aten::convolution",
       [&] {
         at::conv2d(image, rnd({8, 1, 3, 3}), {}, 1, 1, 1, 8);
       }},
      {"aten::convolution",
       [&] {
         at::conv2d(image.contiguous(at::MemoryFormat::ChannelsLast), rnd({16, 8, 3, 3}), {}, 1, 2,
                    2);
       }},
      {"aten::convolution",
       [&] {
         at::conv_transpose2d(image, rnd({8, 4, 2, 2}), rnd({4}), 2);
       }},
      {"aten::convolution",
       [&] {
         at::conv3d(rnd({1, 4, 8, 12, 12}), rnd({4, 4, 3, 3, 3}), rnd({4}), 1, 1);
       }},
      {"aten::convolution_backward",
       [&] {
         backward(at::conv2d(leaf({2, 8, 16, 16}), leaf({16, 8, 3, 3}), leaf({16}), 1, 1));
       }},
      {"aten::convolution_backward",
       [&] {
         backward(at::conv3d(leaf({1, 4, 8, 12, 12}), leaf({4, 4, 3, 3, 3}), leaf({4}), 1, 1));
       }},
      {"aten::convolution_backward",
       [&] {
         backward(at::conv2d(leaf({2, 8, 16, 16}), leaf({8, 1, 3, 3}), {}, 1, 1, 1, 8));
       }},
      {"aten::convolution_backward",
       [&] {
         backward(at::conv_transpose2d(leaf({2, 8, 16, 16}), leaf({8, 4, 2, 2}), {}, 2));
       }},
  });
}

TEST_F(Operators, Normalisations) {
  const Tensor image = rnd({2, 8, 16, 16});
  Tensor mean = at::zeros({8});
  Tensor variance = at::ones({8});
  const auto norm = [&](const Tensor& input, bool trains) {
    return at::batch_norm(input, leaf({8}), leaf({8}), mean, variance, trains, 0.1, 1e-5, false);
  };
  check({
      {"aten::native_batch_norm", [&] { norm(image, true); }},
      {"aten::native_batch_norm", [&] { norm(image, false); }},
      {"aten::native_batch_norm",
       [&] {
         norm(rnd({2, 8, 4, 8, 8}), true);
       }},
      {"aten::native_batch_norm_backward",
       [&] {
         backward(norm(leaf({2, 8, 16, 16}), true));
       }},
      {"aten::native_batch_norm_backward",
       [&] {
         backward(norm(leaf({2, 8, 16, 16}), false));
       }},
      {"aten::_native_batch_norm_legit",
       [&] {
         at::_native_batch_norm_legit(image, rnd({8}), rnd({8}), mean, variance, true, 0.1, 1e-5);
       }},
      {"aten::native_layer_norm",
       [&] {
         at::layer_norm(rnd({4, 32, 64}), {64}, rnd({64}), rnd({64}));
       }},
      {"aten::native_layer_norm_backward",
       [&] {
         backward(at::layer_norm(leaf({4, 32, 64}), {64}, leaf({64}), leaf({64})));
       }},
      {"aten::native_group_norm", [&] { at::group_norm(image, 4, rnd({8}), rnd({8})); }},
      {"aten::native_group_norm_backward",
       [&] {
         backward(at::group_norm(leaf({2, 8, 16, 16}), 4, leaf({8}), leaf({8})));
       }},
  });
  // Five training calls of the table have moved them, their replays have not.
  const Tensor before = mean.clone();
  at::batch_norm(image, {}, {}, mean, variance, false, 0.1, 1e-5, false);
  EXPECT_TRUE(at::equal(mean, before));
}

TEST_F(Operators, Activations) {
  const Tensor x = rnd({32, 64});
  const auto wide = [] { return leaf({32, 64}); };
  check({
      {"aten::relu", [&] { at::relu(x); }},
      {"aten::relu_", [&] { x.clone().relu_(); }},
      {"aten::threshold_backward", [&] { backward(at::relu(wide())); }},
      {"aten::gelu", [&] { at::gelu(x); }},
      {"aten::gelu", [&] { at::gelu(x, "tanh"); }},
      {"aten::gelu_backward", [&] { backward(at::gelu(wide(), "tanh")); }},
      {"aten::leaky_relu", [&] { at::leaky_relu(x, 0.2); }},
      {"aten::leaky_relu_",
       [&] {
         Tensor y = x.clone();
         at::leaky_relu_(y, 0.2);
       }},
      {"aten::leaky_relu_backward", [&] { backward(at::leaky_relu(wide(), 0.2)); }},
      {"aten::sigmoid", [&] { at::sigmoid(x); }},
      {"aten::sigmoid_backward", [&] { backward(at::sigmoid(wide())); }},
      {"aten::tanh", [&] { at::tanh(x); }},
      {"aten::tanh_backward", [&] { backward(at::tanh(wide())); }},
      {"aten::silu", [&] { at::silu(x); }},
      {"aten::silu_backward", [&] { backward(at::silu(wide())); }},
      {"aten::elu", [&] { at::elu(x); }},
      {"aten::hardtanh", [&] { at::hardtanh(x); }},
      {"aten::hardswish_",
       [&] {
         Tensor y = x.clone();
         at::hardswish_(y);
       }},
      {"aten::softplus", [&] { at::softplus(x); }},
      {"aten::mish", [&] { at::mish(x); }},
      {"aten::log_sigmoid_forward", [&] { at::log_sigmoid(x); }},
      {"aten::_prelu_kernel", [&] { at::prelu(x, at::full({1}, 0.2)); }},
      {"aten::_softmax", [&] { at::softmax(x, -1); }},
      {"aten::_softmax_backward_data", [&] { backward(at::softmax(wide(), -1)); }},
      {"aten::_log_softmax", [&] { at::log_softmax(x.t(), 0); }},
      {"aten::_log_softmax_backward_data", [&] { backward(at::log_softmax(wide(), -1)); }},
  });
}

TEST_F(Operators, Losses) {
  const Tensor target = at::randint(0, 64, {64}, at::kLong);
  check({
      {"aten::nll_loss_backward",
       [&] {
         at::cross_entropy_loss(leaf({64, 64}), target).backward();
       }},
      {"aten::nll_loss2d_backward",
       [&] {
         at::cross_entropy_loss(leaf({2, 4, 16, 16}), at::randint(0, 4, {2, 16, 16}, at::kLong))
             .backward();
       }},
      {"aten::mse_loss_backward",
       [&] {
         at::mse_loss(leaf({64, 64}), rnd({64, 64})).backward();
       }},
      {"aten::smooth_l1_loss_backward",
       [&] {
         at::smooth_l1_loss(leaf({64, 64}), rnd({64, 64})).backward();
       }},
      {"aten::binary_cross_entropy",
       [&] {
         at::binary_cross_entropy(at::rand({64, 64}), at::rand({64, 64}), {}, 0);
       }},
  });
}

TEST_F(Operators, RandomNumbers) {
  const Tensor x = rnd({32, 64});
  at::Generator own = at::detail::createCPUGenerator(11);
  const at::TensorOptions floats;
  check({
      {"aten::native_dropout_backward",
       [&] {
         backward(std::get<0>(at::native_dropout(leaf({32, 64}), 0.3, true)));
       }},
      {"aten::bernoulli_.float", [&] { x.clone().bernoulli_(0.4, own); }},
      {"aten::bernoulli",
       [&] {
         at::bernoulli(at::rand({32, 64}), own);
       }},
      {"aten::normal_", [&] { x.clone().normal_(0, 2, own); }},
      {"aten::uniform_", [&] { x.clone().uniform_(-1, 1, own); }},
      {"aten::exponential_", [&] { x.clone().exponential_(1, own); }},
      {"aten::randn.generator",
       [&] {
         at::randn({32, 64}, own, floats);
       }},
      {"aten::randint.low_generator",
       [&] {
         at::randint(2, 9, {32, 64}, own, floats);
       }},
      {"aten::randperm.generator", [&] { at::randperm(1000, own); }},
      {"aten::multinomial",
       [&] {
         at::multinomial(at::rand({4, 600}), 300, false, own);
       }},
  });
}

TEST_F(Operators, Attention) {
  const auto heads = [] { return leaf({2, 4, 32, 16}); };
  check({
      {"aten::_scaled_dot_product_flash_attention_for_cpu",
       [&] { at::scaled_dot_product_attention(heads(), heads(), heads(), {}, 0, true); }},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
       [&] { backward(at::scaled_dot_product_attention(heads(), heads(), heads())); }},
      {"aten::_safe_softmax",
       [&] { at::scaled_dot_product_attention(heads(), heads(), heads(), {}, 0.2); }},
      {"aten::bmm",
       [&] {
         at::einsum("bhqd,bhkd->bhqk", {heads(), heads()});
       }},
      {"aten::_transformer_encoder_layer_fwd",
       [&] {
         at::_transformer_encoder_layer_fwd(rnd({2, 32, 64}), 64, 4, rnd({192, 64}), rnd({192}),
                                            rnd({64, 64}), rnd({64}), true, false, 1e-5, rnd({64}),
                                            rnd({64}), rnd({64}), rnd({64}), rnd({128, 64}),
                                            rnd({128}), rnd({64, 128}), rnd({64}));
       }},
  });
}

TEST_F(Operators, PoolsAndScales) {
  const Tensor image = rnd({2, 4, 16, 16});
  const Tensor volume = rnd({1, 4, 8, 8, 8});
  const auto picture = [] { return leaf({2, 4, 16, 16}); };
  const auto body = [] { return leaf({1, 4, 8, 8, 8}); };
  check({
      {"aten::max_pool2d_with_indices",
       [&] {
         at::max_pool2d_with_indices(rnd({2, 16, 16, 16}), 2);
       }},
      {"aten::max_pool2d_with_indices_backward", [&] { backward(at::max_pool2d(picture(), 2)); }},
      {"aten::max_pool3d_with_indices",
       [&] {
         at::max_pool3d_with_indices(rnd({2, 8, 8, 8, 8}), 2);
       }},
      {"aten::max_pool3d_with_indices_backward", [&] { backward(at::max_pool3d(body(), 2)); }},
      {"aten::avg_pool2d",
       [&] {
         at::avg_pool2d(rnd({2, 16, 16, 16}), 2);
       }},
      {"aten::avg_pool2d_backward", [&] { backward(at::avg_pool2d(picture(), 2)); }},
      {"aten::avg_pool3d",
       [&] {
         at::avg_pool3d(rnd({2, 8, 16, 16, 16}), 2);
       }},
      {"aten::_adaptive_avg_pool2d",
       [&] {
         at::adaptive_avg_pool2d(rnd({2, 32, 16, 16}), {5, 5});
       }},
      {"aten::upsample_nearest2d",
       [&] {
         at::upsample_nearest2d(image, {32, 32});
       }},
      {"aten::upsample_bilinear2d",
       [&] {
         at::upsample_bilinear2d(image, {30, 30}, false);
       }},
      {"aten::upsample_bilinear2d_backward",
       [&] {
         backward(at::upsample_bilinear2d(picture(), {30, 30}, false));
       }},
      {"aten::upsample_trilinear3d",
       [&] {
         at::upsample_trilinear3d(volume, {16, 16, 16}, true);
       }},
      {"aten::upsample_trilinear3d_backward",
       [&] {
         backward(at::upsample_trilinear3d(body(), {16, 16, 16}, true));
       }},
      {"aten::pixel_shuffle", [&] { at::pixel_shuffle(image, 2); }},
      {"aten::grid_sampler_2d",
       [&] {
         at::grid_sampler_2d(image, at::rand({2, 16, 16, 2}), 0, 0, false);
       }},
      {"aten::im2col",
       [&] {
         at::im2col(image, {3, 3}, {1, 1}, {1, 1}, {1, 1});
       }},
  });
}

TEST_F(Operators, ListsOfTensors) {
  const auto list = [] { return std::vector<Tensor>{rnd({32, 64}), rnd({40, 64}), rnd({8})}; };
  std::vector<Tensor> moments = {at::zeros({32, 64}), at::zeros({40, 64})};
  std::vector<Tensor> squares = {at::zeros({32, 64}), at::zeros({40, 64})};
  std::vector<Tensor> weights = {rnd({32, 64}), rnd({40, 64})};
  const std::vector<Tensor> gradients = {rnd({32, 64}), rnd({40, 64})};
  const std::vector<Tensor> steps = {at::full({}, 1.F), at::full({}, 1.F)};
  check({
      {"aten::_foreach_add_.List", [&] { at::_foreach_add_(list(), list(), 0.5); }},
      {"aten::_foreach_mul_.Scalar", [&] { at::_foreach_mul_(list(), 0.9); }},
      {"aten::_foreach_addcdiv_.Scalar",
       [&] { at::_foreach_addcdiv_(weights, moments, gradients, 0.1); }},
      {"aten::_foreach_sqrt", [&] { at::_foreach_sqrt(squares); }},
      {"aten::_foreach_add.List", [&] { at::_foreach_add(list(), list()); }},
      {"aten::_fused_adamw_",
       [&] {
         at::_fused_adamw_(weights, gradients, moments, squares, {}, steps, 1e-3, 0.9, 0.99, 0.01,
                           1e-8, false, false);
       }},
      {"aten::_fused_sgd_",
       [&] { at::_fused_sgd_(weights, gradients, moments, 0, 0.9, 0.1, 0, false, false, false); }},
  });
}

TEST_F(Operators, RecurrentNetworks) {
  std::vector<Tensor> weights = {leaf({192, 32}), leaf({192, 64}), leaf({192}), leaf({192})};
  check({
      {"aten::addmm",
       [&] {
         backward(std::get<0>(at::gru(leaf({20, 16, 32}), rnd({1, 16, 64}), weights, true, 1, 0.0,
                                      true, false, false)));
       }},
  });
}

TEST_F(Operators, LargeOnesRunOnSeveralThreads) {
  at::set_num_threads(2);
  check({
      {"aten::native_batch_norm_backward",
       [&] {
         backward(at::batch_norm(leaf({8, 16, 64, 64}), leaf({16}), leaf({16}), {}, {}, true, 0.1,
                                 1e-5, false));
       }},
      {"aten::sum.dim_IntList",
       [&] {
         at::sum(rnd({256, 4096}), 0);
       }},
      {"aten::scatter_add_",
       [&] {
         backward(at::gather(leaf({512, 512}), 0, at::randint(0, 512, {512, 512}, at::kLong)));
       }},
      {"aten::convolution_backward",
       [&] {
         backward(at::conv2d(leaf({8, 16, 32, 32}), leaf({32, 16, 3, 3}), leaf({32}), 1, 1));
       }},
  });
}

}  // namespace
}  // namespace spillway::recompute
