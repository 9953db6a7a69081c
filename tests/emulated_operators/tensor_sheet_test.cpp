// Operators on tensors give on the emulated device what they give on the CPU, forward and backward.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "compared.h"

namespace spillway::emulated {
namespace {

using at::indexing::Slice;

at::Tensor zeros_of_longs(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::zeros(sizes, like.options().dtype(at::kLong));
}

TEST(TensorSheet, ProductsOfMatrices) {
  expect_equal({
      {"linear",
       [](const Tensors& x) -> Tensors { return {at::linear(x[0], x[1], x[2])}; },
       {drawn({4, 5, 8}), drawn({6, 8}), drawn({6})}},
      {"linear of strides",
       [](const Tensors& x) -> Tensors { return {at::linear(x[0].transpose(0, 1), x[1])}; },
       {drawn({4, 5, 8}), drawn({6, 8})}},
      {"bmm",
       [](const Tensors& x) -> Tensors { return {at::bmm(x[0], x[1])}; },
       {drawn({3, 4, 5}), drawn({3, 5, 6})}},
      {"matmul",
       [](const Tensors& x) -> Tensors { return {at::matmul(x[0], x[1])}; },
       {drawn({2, 3, 4, 5}), drawn({5, 6})}},
      {"addmm",
       [](const Tensors& x) -> Tensors { return {at::addmm(x[0], x[1], x[2], 0.5, 2)}; },
       {drawn({6}), drawn({4, 5}), drawn({5, 6})}},
      {"baddbmm",
       [](const Tensors& x) -> Tensors { return {at::baddbmm(x[0], x[1], x[2])}; },
       {drawn({3, 4, 6}), drawn({3, 4, 5}), drawn({3, 5, 6})}},
      {"einsum",
       [](const Tensors& x) -> Tensors {
         return {at::einsum("bij,bkj->bik", {x[0], x[1]})};
       },
       {drawn({3, 4, 5}), drawn({3, 7, 5})}},
      {"mv, dot",
       [](const Tensors& x) -> Tensors {
         return {at::mv(x[0], x[1]), at::dot(x[1], x[1])};
       },
       {drawn({4, 5}), drawn({5})}},
      {"bilinear",
       [](const Tensors& x) -> Tensors { return {at::bilinear(x[0], x[1], x[2])}; },
       {drawn({3, 4}), drawn({3, 5}), drawn({6, 4, 5})}},
      {"cdist",
       [](const Tensors& x) -> Tensors { return {at::cdist(x[0], x[1])}; },
       {drawn({5, 3}), drawn({6, 3})}},
  });
}

TEST(TensorSheet, ElementByElement) {
  expect_equal({
      {"gelu",
       [](const Tensors& x) -> Tensors {
         return {at::gelu(x[0]), at::gelu(x[0], "tanh")};
       },
       {drawn({99})}},
      {"silu, mish",
       [](const Tensors& x) -> Tensors {
         return {at::silu(x[0]), at::mish(x[0])};
       },
       {drawn({99})}},
      {"relu_", [](const Tensors& x) -> Tensors { return {x[0].mul(1).relu_()}; }, {drawn({99})}},
      {"leaky_relu, elu",
       [](const Tensors& x) -> Tensors {
         return {at::leaky_relu(x[0]), at::elu(x[0])};
       },
       {drawn({99})}},
      {"glu", [](const Tensors& x) -> Tensors { return {at::glu(x[0])}; }, {drawn({4, 8})}},
      {"exp, pow",
       [](const Tensors& x) -> Tensors { return {x[0].exp().pow(1.5).sigmoid()}; },
       {drawn({99})}},
      {"where",
       [](const Tensors& x) -> Tensors { return {at::where(x[0] > 0, x[0], x[1])}; },
       {drawn({9}), drawn({9})}},
      {"masked_fill",
       [](const Tensors& x) -> Tensors { return {x[0].masked_fill(x[0] > 0, 2.0)}; },
       {drawn({9})}},
      {"clamp, lerp",
       [](const Tensors& x) -> Tensors { return {x[0].clamp(-1, 1).lerp(x[1], 0.3)}; },
       {drawn({9}), drawn({9})}},
      {"broadcast",
       [](const Tensors& x) -> Tensors { return {x[0] * x[1] + x[2]}; },
       {drawn({4, 1, 3}), drawn({5, 1}), drawn({})}},
      {"a scalar of the host",
       [](const Tensors& x) -> Tensors { return {x[0] * at::scalar_tensor(1.5)}; },
       {drawn({9})}},
      {"types",
       [](const Tensors& x) -> Tensors {
         return {x[0].to(at::kDouble).sum().to(at::kFloat), x[0].to(at::kInt)};
       },
       {drawn({50})}},
      {"lists",
       [](const Tensors& x) -> Tensors {
         return at::_foreach_add(at::_foreach_mul({x[0], x[1]}, 2), {x[1], x[0]});
       },
       {drawn({9}), drawn({9})}},
      {"conjugates",
       [](const Tensors& x) -> Tensors {
         return {at::view_as_real((at::view_as_complex(x[0]).conj() * 2).resolve_conj())};
       },
       {drawn({5, 2})}},
  });
}

TEST(TensorSheet, Reductions) {
  expect_equal({
      {"softmax",
       [](const Tensors& x) -> Tensors {
         return {at::softmax(x[0], -1), at::log_softmax(x[0], 0)};
       },
       {drawn({4, 9})}},
      {"sum, mean, var",
       [](const Tensors& x) -> Tensors { return {x[0].sum(0) + x[0].mean(0) + x[0].var(0)}; },
       {drawn({50, 3})}},
      {"cumsum, prod",
       [](const Tensors& x) -> Tensors {
         return {x[0].cumsum(0), x[0].prod()};
       },
       {drawn({50})}},
      {"max, norm, logsumexp",
       [](const Tensors& x) -> Tensors {
         return {std::get<0>(x[0].max(1)), x[0].norm(), x[0].logsumexp(1)};
       },
       {drawn({5, 9})}},
      {"topk, sort",
       [](const Tensors& x) -> Tensors {
         return {std::get<0>(x[0].topk(3)), std::get<1>(x[0].topk(3)), std::get<0>(x[0].sort())};
       },
       {drawn({5, 9})}},
      {"argmax, any",
       [](const Tensors& x) -> Tensors {
         return {x[0].argmax(1), x[0].isnan().any()};
       },
       {drawn({5, 9})}},
      {"unique",
       [](const Tensors& x) -> Tensors {
         return {std::get<0>(at::_unique2(x[0].mul(3).to(at::kLong)))};
       },
       {drawn({50})}},
      {"nonzero",
       [](const Tensors& x) -> Tensors { return {x[0].gt(0).nonzero()}; },
       {drawn({5, 9})}},
      {"values of the host",
       [](const Tensors& x) -> Tensors {
         return {x[0] * x[0].sum().item<float>() * double(at::equal(x[0], x[0]))};
       },
       {drawn({5})}},
  });
}

TEST(TensorSheet, Places) {
  expect_equal({
      {"cat, stack",
       [](const Tensors& x) -> Tensors {
         return {at::cat({x[0], x[1]}, 1), at::stack({x[0], x[0]})};
       },
       {drawn({3, 4}), drawn({3, 5})}},
      {"index",
       [](const Tensors& x) -> Tensors {
         return {x[0].index({at::tensor({0, 2}, x[0].options().dtype(at::kLong))})};
       },
       {drawn({3, 4})}},
      {"index of the host",
       [](const Tensors& x) -> Tensors {
         return {x[0].index({at::tensor({0, 2}, at::kLong)})};
       },
       {drawn({3, 4})}},
      {"index by a mask",
       [](const Tensors& x) -> Tensors { return {x[0].index({x[0] > 0})}; },
       {drawn({30, 4})}},
      {"index_put_",
       [](const Tensors& x) -> Tensors {
         const at::Tensor rows = at::tensor({0, 2}, x[0].options().dtype(at::kLong));
         return {x[0].clone().index_put_({rows}, x[1], /*accumulate=*/true)};
       },
       {drawn({3, 4}), drawn({2, 4})}},
      {"slices",
       [](const Tensors& x) -> Tensors {
         at::Tensor copy = x[0].clone();
         copy.index_put_({Slice(1, 3), Slice()}, x[1]);
         return {copy.narrow(0, 2, 2).t()};
       },
       {drawn({5, 4}), drawn({2, 4})}},
      {"gather",
       [](const Tensors& x) -> Tensors {
         return {x[0].gather(1, zeros_of_longs({3, 2}, x[0]))};
       },
       {drawn({3, 4})}},
      {"scatter_add",
       [](const Tensors& x) -> Tensors {
         return {x[0].scatter_add(0, zeros_of_longs({3, 4}, x[0]), x[1])};
       },
       {drawn({3, 4}), drawn({3, 4})}},
      {"embedding",
       [](const Tensors& x) -> Tensors { return {at::embedding(x[0], x[1])}; },
       {drawn({20, 8}), drawn_integers(20, {4, 7})}},
  });
}

TEST(TensorSheet, Shapes) {
  expect_equal({
      {"flip, roll, tril",
       [](const Tensors& x) -> Tensors {
         return {x[0].flip(0).roll(2, 1), x[0].tril()};
       },
       {drawn({5, 9})}},
      {"pad",
       [](const Tensors& x) -> Tensors {
         return {at::reflection_pad2d(x[0], {1, 1, 2, 2}), at::constant_pad_nd(x[0], {1, 2}, 3)};
       },
       {drawn({1, 1, 5, 9})}},
      {"repeat, expand",
       [](const Tensors& x) -> Tensors {
         return {x[0].repeat({2, 3}) + x[0].expand({2, 1}).repeat({2, 3})};
       },
       {drawn({2, 1})}},
      {"split, chunk",
       [](const Tensors& x) -> Tensors { return {x[0].split(2)[1] + x[0].chunk(2)[0]}; },
       {drawn({4, 3})}},
      {"im2col",
       [](const Tensors& x) -> Tensors {
         return {at::im2col(x[0], {3, 3}, {1, 1}, {0, 0}, {1, 1})};
       },
       {drawn({1, 2, 6, 6})}},
      {"strided copies",
       [](const Tensors& x) -> Tensors {
         return {x[0].t().contiguous(), x[0].t().to(at::kDouble)};
       },
       {drawn({5, 9})}},
      {"resized results",
       [](const Tensors& x) -> Tensors {
         at::Tensor out = at::empty({0}, x[0].options());
         return {at::add_out(out, x[0].detach(), x[0].detach()),
                 at::arange(3, 40, 2, x[0].options())};
       },
       {drawn({5, 9})}},
      {"made",
       [](const Tensors& x) -> Tensors {
         return {at::linspace(0, 1, 7, x[0].options()),
                 at::tril_indices(4, 4, 0, x[0].options().dtype(at::kLong)),
                 at::full({3}, 2.5, x[0].options()), at::eye(3, x[0].options())};
       },
       {drawn({1})}},
  });
}

TEST(TensorSheet, DrawsFromTheGeneratorOfTheCpu) {
  expect_equal({
      {"multinomial",
       [](const Tensors& x) -> Tensors { return {at::multinomial(x[0].abs(), 2)}; },
       {drawn({4, 9})},
       false},
      {"bernoulli_, normal_, uniform_",
       [](const Tensors& x) -> Tensors {
         return {at::empty_like(x[0]).bernoulli_(0.5), at::randn_like(x[0]), at::rand_like(x[0])};
       },
       {drawn({40})},
       false},
      {"randperm, randint",
       [](const Tensors& x) -> Tensors {
         const auto longs = x[0].options().dtype(at::kLong);
         return {at::randperm(40, longs), at::randint(7, {30}, longs)};
       },
       {drawn({1})},
       false},
      {"dropout",
       [](const Tensors& x) -> Tensors {
         return {at::dropout(x[0], 0.3, true), at::feature_dropout(x[0], 0.3, true)};
       },
       {drawn({10, 10, 4, 4})}},
      {"rrelu",
       [](const Tensors& x) -> Tensors { return {at::rrelu(x[0], 0.1, 0.3, true)}; },
       {drawn({99})}},
  });
}

TEST(TensorSheet, LinearAlgebraAndTransforms) {
  expect_equal({
      {"fft",
       [](const Tensors& x) -> Tensors { return {at::fft_rfft(x[0]).abs()}; },
       {drawn({64})}},
      {"svd",
       [](const Tensors& x) -> Tensors { return {std::get<1>(at::linalg_svd(x[0]))}; },
       {drawn({5, 5})}},
      {"solve, inv",
       [](const Tensors& x) -> Tensors {
         return {at::linalg_solve(x[0], x[1]), at::linalg_inv(x[0])};
       },
       {drawn({5, 5}), drawn({5, 2})}},
      {"cholesky",
       [](const Tensors& x) -> Tensors {
         return {at::linalg_cholesky(at::mm(x[0], x[0].t()) + at::eye(5, x[0].options()))};
       },
       {drawn({5, 5})}},
  });
}

}  // namespace
}  // namespace spillway::emulated
