// Operators that look up, move and compute.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <vector>

#include "operator_table.h"

namespace spillway::recompute {
namespace {

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

TEST_F(Operators, OddArguments) {
  const Tensor x = rnd({32, 64});
  const Tensor wave = rnd({32, 64}, at::TensorOptions(at::kComplexFloat));
  const Tensor square = rnd({32, 32}, at::TensorOptions(at::kComplexFloat));
  const at::Generator generator = at::detail::createCPUGenerator(3);
  check({
      {"aten::mul.Scalar", [&] { wave* at::Scalar(c10::complex<double>(0.5, -2)); }},
      {"aten::mul.Tensor", [&] { x* at::scalar_tensor(2.5); }},
      {"aten::add_.Scalar", [&] { at::imag(wave.clone().conj()).add_(1); }},
      {"aten::mul_.Tensor", [&] { wave.clone().conj().mul_(wave); }},
      {"aten::bmm", [&] { at::bmm(square.unsqueeze(0).conj(), square.unsqueeze(0).mT().conj()); }},
      {"aten::copy_",
       [&] {
         at::empty({64, 32}, wave.options()).t().copy_(wave.conj());
       }},
      {"aten::cat",
       [&] {
         at::cat({x, at::empty({0, 64}), x});
       }},
      {"aten::add.out",
       [&] {
         Tensor out = at::empty({32, 128}).slice(1, 0, 128, 2);
         at::add_out(out, x, x.flip(0));
       }},
      {"aten::native_layer_norm_backward",
       [&] {
         backward(at::layer_norm(leaf({32, 64}), {64}));
       }},
      {"aten::normal_", [&] { x.clone().normal_(0, 1, generator); }},
      {"aten::_foreach_mul_.ScalarList",
       [&] {
         std::vector<Tensor> list = {x.clone(), wave.clone(), at::empty({0})};
         at::_foreach_mul_(list, {1.5, 2, true});
       }},
  });
}

}  // namespace
}  // namespace spillway::recompute
