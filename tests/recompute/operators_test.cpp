// Operators as trainers call them, each run again in place and elsewhere.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "checked_calls.h"

namespace spillway::recompute {
namespace {

using at::Tensor;
using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Key;

struct Case {
  std::string op;  ///< That must have been replayed.
  std::function<void()> call;
};

Tensor rnd(at::IntArrayRef sizes, at::TensorOptions options = {}) {
  return at::randn(sizes, options);
}

Tensor leaf(at::IntArrayRef sizes) { return rnd(sizes).requires_grad_(); }

void backward(const Tensor& result) {
  // Not `sum`: its gradient is an expanded tensor with strides of zero.
  result.backward(rnd(result.sizes(), result.options()));
}

class Operators : public ::testing::Test {
 protected:
  Operators() {
    PagedTable::instance();
    at::manual_seed(7);
  }

  void check(const std::vector<Case>& cases) {
    for (const Case& one : cases) {
      SCOPED_TRACE(one.op);
      CheckedCalls calls(*engine_);
      {
        const Watched watched(calls);
        one.call();
      }
      EXPECT_THAT(calls.replayed, Contains(Key(one.op))) << reason(calls, one.op);
      EXPECT_THAT(calls.copied, IsEmpty());
    }
  }

  static std::string reason(const CheckedCalls& calls, const std::string& op) {
    const auto found = calls.refused.find(op);
    std::string text = found == calls.refused.end() ? "not called" : found->second;
    for (const auto& [name, count] : calls.replayed) text += "; replayed " + name;
    return text;
  }

  std::unique_ptr<ReplayEngine> engine_ = make_engine();
};

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
  check({
      {"aten::bernoulli_.float",
       [&] {
         backward(at::dropout(leaf({32, 64}), 0.3, true));
       }},
      {"aten::native_dropout",
       [&] {
         at::native_dropout(leaf({128, 64}), 0.3, true);
       }},
      {"aten::native_dropout_backward",
       [&] {
         backward(std::get<0>(at::native_dropout(leaf({32, 64}), 0.3, true)));
       }},
      {"aten::bernoulli_.float", [&] { x.clone().bernoulli_(0.4); }},
      {"aten::bernoulli_.float", [&] { x.clone().bernoulli_(0.4, own); }},
      {"aten::bernoulli",
       [&] {
         at::bernoulli(at::rand({32, 64}));
       }},
      {"aten::normal_", [&] { x.clone().normal_(0, 2); }},
      {"aten::uniform_", [&] { x.clone().uniform_(-1, 1, own); }},
      {"aten::exponential_", [&] { x.clone().exponential_(); }},
      {"aten::randn",
       [&] {
         at::randn({32, 64});
       }},
      {"aten::rand_like", [&] { at::rand_like(x); }},
      {"aten::randint.low",
       [&] {
         at::randint(2, 9, {32, 64});
       }},
      {"aten::randperm.generator", [&] { at::randperm(1000, own); }},
      {"aten::multinomial",
       [&] {
         at::multinomial(at::rand({4, 600}), 300);
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

TEST_F(Operators, Lookups) {
  const Tensor table = rnd({100, 64});
  const Tensor rows = at::randint(0, 100, {40}, at::kLong);
  const Tensor wide = at::randint(0, 64, {100, 20}, at::kLong);
  const Tensor mask = rnd({100, 64}) > 0;
  check({
      {"aten::embedding", [&] { at::embedding(table, rows); }},
      {"aten::embedding_dense_backward",
       [&] {
         backward(at::embedding(leaf({100, 64}), rows));
       }},
      {"aten::index_select", [&] { at::index_select(table, 0, rows); }},
      {"aten::index.Tensor", [&] { at::index(table, {rows}); }},
      {"aten::index.Tensor",
       [&] {
         at::index(table.t(), {c10::nullopt, rows});
       }},
      {"aten::gather", [&] { at::gather(table, 1, wide); }},
      {"aten::scatter_add",
       [&] {
         at::scatter_add(table, 1, wide, rnd({100, 20}));
       }},
      {"aten::scatter_add_",
       [&] {
         backward(at::gather(leaf({100, 64}), 1, wide));
       }},
      {"aten::scatter_.value", [&] { table.clone().scatter_(1, wide, 1.5); }},
      {"aten::index_add_",
       [&] {
         table.clone().index_add_(0, rows, rnd({40, 64}));
       }},
      {"aten::index_put_",
       [&] {
         table.clone().index_put_({at::arange(40)}, rnd({40, 64}));
       }},
      {"aten::where.self", [&] { at::where(mask, table, at::zeros({64})); }},
      {"aten::masked_fill.Scalar", [&] { at::masked_fill(table, mask, -1e9); }},
      {"aten::masked_fill_.Scalar", [&] { table.clone().masked_fill_(mask, -1e9); }},
      {"aten::topk", [&] { at::topk(table, 32); }},
      {"aten::sort", [&] { at::sort(table, 1); }},
      {"aten::argmax",
       [&] {
         at::argmax(rnd({1000, 8}), 1);
       }},
  });
}

TEST_F(Operators, Shapes) {
  const Tensor x = rnd({32, 64});
  const Tensor image = rnd({2, 4, 16, 16});
  check({
      {"aten::cat",
       [&] {
         at::cat({x, x, rnd({1, 64})});
       }},
      {"aten::stack",
       [&] {
         at::stack({x, rnd({32, 64})}, 1);
       }},
      {"aten::clone", [&] { x.clone(); }},
      {"aten::clone", [&] { x.t().contiguous(); }},
      {"aten::clone",
       [&] {
         x.unsqueeze(1).expand({32, 4, 64}).contiguous();
       }},
      {"aten::clone", [&] { image.contiguous(at::MemoryFormat::ChannelsLast); }},
      {"aten::_to_copy", [&] { x.to(at::kBFloat16); }},
      {"aten::copy_",
       [&] {
         at::empty({64, 32}).t().copy_(x);
       }},
      {"aten::constant_pad_nd",
       [&] {
         at::constant_pad_nd(image, {1, 1, 2, 2}, 0.5);
       }},
      {"aten::reflection_pad2d",
       [&] {
         at::reflection_pad2d(image, {1, 1, 1, 1});
       }},
      {"aten::flip", [&] { at::flip(x, {0}); }},
      {"aten::roll", [&] { at::roll(x, 3, 1); }},
      {"aten::repeat",
       [&] {
         x.repeat({2, 2});
       }},
      {"aten::tril", [&] { at::tril(x); }},
      {"aten::arange", [&] { at::arange(2000); }},
      {"aten::zeros",
       [&] {
         at::zeros({32, 64});
       }},
      {"aten::full",
       [&] {
         at::full({32, 64}, 2.5);
       }},
      {"aten::ones_like", [&] { at::ones_like(x); }},
      {"aten::zero_", [&] { x.clone().zero_(); }},
      {"aten::fill_.Scalar", [&] { x.clone().select(0, 3).fill_(4); }},
      {"aten::slice_backward",
       [&] {
         backward(at::slice(leaf({64, 64}), 0, 3, 20));
       }},
      {"aten::select_backward",
       [&] {
         backward(at::select(leaf({64, 64}), 0, 3));
       }},
      {"aten::split_with_sizes_copy",
       [&] {
         at::split_with_sizes_copy(x, {16, 16});
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

TEST_F(Operators, Products) {
  const Tensor a = rnd({48, 64});
  const Tensor b = rnd({64, 32});
  check({
      {"aten::addmm",
       [&] {
         at::linear(a, rnd({32, 64}), rnd({32}));
       }},
      {"aten::addmm",
       [&] {
         at::linear(a, leaf({32, 64}), leaf({32}));
       }},
      {"aten::mm", [&] { at::mm(a, b); }},
      {"aten::mm", [&] { at::mm(b.t(), a.t()); }},
      {"aten::mm",
       [&] {
         backward(at::matmul(leaf({48, 64}), leaf({64, 32})));
       }},
      {"aten::bmm",
       [&] {
         at::matmul(rnd({4, 16, 32}), rnd({4, 32, 32}));
       }},
      {"aten::baddbmm",
       [&] {
         at::baddbmm(rnd({4, 16, 32}), rnd({4, 16, 8}), rnd({4, 8, 32}), 0.5, 2);
       }},
      {"aten::addmv",
       [&] {
         at::addmv(rnd({1200}), rnd({1200, 8}), rnd({8}));
       }},
      {"aten::addr",
       [&] {
         at::addr(rnd({48, 32}), rnd({48}), rnd({32}));
       }},
      {"aten::mm.out",
       [&] {
         Tensor out = at::empty({48, 32});
         at::mm_out(out, a, b);
       }},
  });
}

TEST_F(Operators, Arithmetic) {
  const Tensor x = rnd({32, 64});
  const Tensor y = rnd({32, 64});
  const Tensor row = rnd({64});
  const Tensor positive = at::rand({32, 64}) + 0.1;
  check({
      {"aten::add.Tensor", [&] { at::add(x, row, 0.5); }},
      {"aten::add_.Tensor", [&] { x.clone().add_(y, 3); }},
      {"aten::add_.Tensor",
       [&] {
         Tensor z = x.clone();
         z.add_(z);
       }},
      {"aten::sub.Tensor", [&] { at::sub(x.t(), y.t()); }},
      {"aten::mul.Scalar", [&] { x * 2.5; }},
      // As Python multiplies by a number: the result is float, not double.
      {"aten::mul.Tensor",
       [&] {
         Tensor number = at::scalar_tensor(2.5, at::kDouble);
         number.unsafeGetTensorImpl()->set_wrapped_number(true);
         EXPECT_EQ(at::mul(at::ones({32, 64}, at::kInt), number).scalar_type(), at::kFloat);
       }},
      {"aten::mul.Tensor",
       [&] {
         at::mul(x, row.expand({32, 64}));
       }},
      {"aten::mul_.Tensor", [&] { x.clone().slice(1, 3, 50, 2).mul_(y.slice(1, 3, 50, 2)); }},
      {"aten::div.Tensor", [&] { x / y; }},
      {"aten::div.Tensor_mode", [&] { at::div(x, y, "floor"); }},
      {"aten::pow.Tensor_Scalar", [&] { at::pow(x, 3); }},
      {"aten::exp", [&] { at::exp(x); }},
      {"aten::log", [&] { at::log(positive); }},
      {"aten::sqrt", [&] { at::sqrt(positive); }},
      {"aten::rsqrt", [&] { at::rsqrt(positive); }},
      {"aten::abs", [&] { at::abs(x); }},
      {"aten::neg", [&] { at::neg(x); }},
      {"aten::clamp", [&] { at::clamp(x, -1, c10::nullopt); }},
      {"aten::maximum", [&] { at::maximum(x, y); }},
      {"aten::addcmul", [&] { at::addcmul(x, y, y, 0.1); }},
      {"aten::addcdiv_", [&] { x.clone().addcdiv_(y, positive, -0.1); }},
      {"aten::lerp_.Scalar", [&] { x.clone().lerp_(y, 0.1); }},
      {"aten::gt.Scalar",
       [&] {
         at::rand({100, 100}) > 0.5;
       }},
  });
}

TEST_F(Operators, ReductionsAndGivenOutputs) {
  const Tensor x = rnd({32, 64});
  const Tensor y = rnd({32, 64});
  check({
      {"aten::sum.dim_IntList",
       [&] {
         at::sum(rnd({1200, 16}), 1);
       }},
      {"aten::mean.dim",
       [&] {
         at::mean(rnd({40, 64, 64}), {0});
       }},
      {"aten::var.correction",
       [&] {
         at::var(rnd({1200, 16}), 1);
       }},
      {"aten::linalg_vector_norm",
       [&] {
         at::linalg_vector_norm(rnd({1200, 16}), 2, {1});
       }},
      {"aten::cumsum", [&] { at::cumsum(x, 1); }},
      {"aten::add.out",
       [&] {
         Tensor out = at::empty({32, 64});
         at::add_out(out, x, y);
       }},
      {"aten::cat.out",
       [&] {
         Tensor out = at::empty({64, 64});
         at::cat_out(out, {x, y});
       }},
  });
}

TEST_F(Operators, OtherTypes) {
  const auto half = at::TensorOptions(at::kBFloat16);
  const auto exact = at::TensorOptions(at::kDouble);
  const auto complex = at::TensorOptions(at::kComplexFloat);
  const Tensor wave = rnd({32, 64}, complex);
  check({
      {"aten::convolution",
       [&] {
         at::conv2d(rnd({2, 8, 16, 16}, half), rnd({16, 8, 3, 3}, half), rnd({16}, half));
       }},
      {"aten::addmm",
       [&] {
         at::linear(rnd({64, 64}, half), rnd({64, 64}, half), rnd({64}, half));
       }},
      {"aten::gelu",
       [&] {
         at::gelu(rnd({64, 64}, half));
       }},
      {"aten::_softmax",
       [&] {
         at::softmax(rnd({64, 64}, half), 1, at::kFloat);
       }},
      {"aten::convolution",
       [&] {
         at::conv2d(rnd({2, 8, 16, 16}, exact), rnd({16, 8, 3, 3}, exact));
       }},
      {"aten::mm",
       [&] {
         at::mm(rnd({32, 32}, exact), rnd({32, 32}, exact));
       }},
      {"aten::mm", [&] { at::mm(wave, wave.t().conj()); }},
      {"aten::mul.Tensor", [&] { wave.conj() * wave; }},
      {"aten::_fft_r2c",
       [&] {
         at::fft_rfft(rnd({32, 64}));
       }},
      {"aten::bitwise_and.Tensor",
       [&] {
         at::ones({32, 64}, at::kInt).bitwise_and(at::full({64}, 3, at::kInt));
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
