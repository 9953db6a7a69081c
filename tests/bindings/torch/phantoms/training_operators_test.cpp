// Operators of training beyond those that may run again.

#include <ATen/ATen.h>

#include <vector>

#include "phantom_calls.h"

namespace spillway::phantoms {
namespace {

TEST_F(Phantoms, MoreLosses) {
  const auto x = [] { return leaf({8, 5}); };
  const auto y = [] { return at::rand({8, 5}); };
  const Tensor classes = at::randint(0, 5, {8}, at::kLong);
  check({
      {"aten::nll_loss_backward",
       [&] { at::cross_entropy_loss(x(), classes, at::rand({5}), 1, 2).backward(); }},
      {"aten::nll_loss_forward", [&] { at::nll_loss(at::log_softmax(x(), 1), classes, {}, 0); }},
      {"aten::binary_cross_entropy_backward",
       [&] { at::binary_cross_entropy(at::sigmoid(x()), y()).backward(); }},
      {"aten::binary_cross_entropy_with_logits",
       [&] { at::binary_cross_entropy_with_logits(x(), y()).backward(); }},
      {"aten::huber_loss_backward", [&] { at::huber_loss(x(), y()).backward(); }},
      {"aten::mean", [&] { at::l1_loss(x(), y()).backward(); }},
      {"aten::xlogy.Tensor", [&] { at::kl_div(x(), y()).backward(); }},
      {"aten::soft_margin_loss_backward", [&] { at::soft_margin_loss(x(), y()).backward(); }},
      {"aten::multi_margin_loss_backward", [&] { at::multi_margin_loss(x(), classes).backward(); }},
      {"aten::clamp_min", [&] { at::triplet_margin_loss(x(), x(), x()).backward(); }},
      {"aten::mean", [&] { at::cosine_embedding_loss(x(), x(), at::ones({8})).backward(); }},
  });
}

TEST_F(Phantoms, RecurrentLayers) {
  const auto weights = [] {
    return std::vector<Tensor>{leaf({64, 8}), leaf({64, 16}), leaf({64}), leaf({64})};
  };
  const auto lstm = [&](bool trains, double dropout) {
    auto all = weights();
    for (const Tensor& one : {leaf({64, 16}), leaf({64, 16}), leaf({64}), leaf({64})})
      all.push_back(one);
    return std::get<0>(at::lstm(leaf({5, 3, 8}), {at::zeros({2, 3, 16}), at::zeros({2, 3, 16})},
                                all, true, 2, dropout, trains, false, false));
  };
  check({
      {"aten::mkldnn_rnn_layer_backward", [&] { backward(lstm(true, 0)); }},
      {"aten::bernoulli_.float", [&] { backward(lstm(true, 0.5)); }},
      {"aten::mkldnn_rnn_layer",
       [&] {
         const at::NoGradGuard no_grad;
         lstm(false, 0);
       }},
      {"aten::tanh",
       [] {
         const std::vector<Tensor> all = {leaf({16, 8}), leaf({16, 16}), leaf({16}), leaf({16})};
         backward(std::get<0>(at::rnn_tanh(leaf({5, 3, 8}), at::zeros({1, 3, 16}), all, true, 1, 0,
                                           true, false, false)));
       }},
      {"aten::sigmoid_backward",
       [&] {
         const auto w = weights();
         backward(std::get<1>(
             at::lstm_cell(leaf({3, 8}), {leaf({3, 16}), leaf({3, 16})}, w[0], w[1], w[2], w[3])));
       }},
  });
}

TEST_F(Phantoms, LookupsAndTheirGradients) {
  const Tensor rows = at::randint(0, 9, {3, 4}, at::kLong);
  const auto table = [] { return leaf({9, 6}); };
  const auto bag = [&](std::int64_t mode, bool last) {
    return std::get<0>(at::embedding_bag(table(), rows.reshape({12}), at::tensor({0, 5}, at::kLong),
                                         false, mode, false, {}, last));
  };
  check({
      {"aten::embedding_dense_backward", [&] { backward(at::embedding(table(), rows, 2)); }},
      {"aten::_embedding_bag", [&] { bag(0, false); }},
      {"aten::_embedding_bag_backward", [&] { backward(bag(1, false)); }},
      {"aten::_embedding_bag", [&] { bag(2, false); }},
      {"aten::_index_put_impl_", [&] { backward(at::index(table(), {rows})); }},
      {"aten::index_add_", [&] { backward(at::index_select(table(), 0, rows[0])); }},
      {"aten::gather", [&] { backward(at::gather(table(), 0, rows)); }},
      {"aten::scatter.src",
       [&] {
         at::scatter(table().detach(), 0, rows, rnd({3, 4}));
       }},
      {"aten::scatter_reduce.two",
       [&] {
         at::scatter_reduce(table().detach(), 0, rows, rnd({3, 4}), "sum");
       }},
      {"aten::index_copy",
       [&] {
         at::index_copy(table().detach(), 0, at::arange(4), rnd({4, 6}));
       }},
      {"aten::index_fill.int_Scalar", [&] { at::index_fill(table().detach(), 0, rows[0], 1); }},
      {"aten::take", [&] { backward(at::take(table(), rows)); }},
      {"aten::masked_fill.Scalar",
       [&] {
         backward(at::masked_fill(table(), rnd({9, 6}) > 0, 0));
       }},
      {"aten::where.self",
       [&] {
         backward(at::where(rnd({9, 6}) > 0, table(), table()));
       }},
      {"aten::masked_scatter",
       [&] {
         at::masked_scatter(table().detach(), rnd({9, 6}) > 0, rnd({60}));
       }},
      {"aten::scatter_.src", [&] { backward(std::get<0>(at::max(table(), 1))); }},
  });
}

TEST_F(Phantoms, MoreShapes) {
  const auto x = [] { return leaf({6, 8}); };
  check({
      {"aten::add_.Tensor",
       [&] {
         for (const Tensor& part : at::split(x(), 3)) backward(part);
       }},
      {"aten::cat", [&] { backward(at::chunk(x(), 2, 1)[1]); }},
      {"aten::select_backward", [&] { backward(x()[3]); }},
      {"aten::stack",
       [&] {
         backward(at::stack({x(), x()}, 1));
       }},
      {"aten::roll", [&] { backward(at::roll(x(), 2, 0)); }},
      {"aten::flip", [&] { backward(at::flip(x(), {0})); }},
      {"aten::repeat",
       [&] {
         backward(x().repeat({2, 3}));
       }},
      {"aten::triu", [&] { backward(at::triu(x(), 1)); }},
      {"aten::_to_copy", [&] { backward(x().to(at::kBFloat16).to(at::kFloat)); }},
      {"aten::sum.dim_IntList",
       [&] {
         backward(x().expand({3, 6, 8}) * rnd({3, 6, 8}));
       }},
  });
}

TEST_F(Phantoms, PadsPoolsAndScales) {
  const auto image = [] { return leaf({2, 3, 6, 6}); };
  check({
      {"aten::constant_pad_nd",
       [&] {
         backward(at::constant_pad_nd(image(), {1, 2}));
       }},
      {"aten::reflection_pad2d_backward",
       [&] {
         backward(at::reflection_pad2d(image(), {1, 1, 1, 1}));
       }},
      {"aten::replication_pad2d_backward",
       [&] {
         backward(at::replication_pad2d(image(), {1, 1, 1, 1}));
       }},
      {"aten::upsample_bicubic2d_backward",
       [&] {
         backward(at::upsample_bicubic2d(image(), {9, 9}, false));
       }},
      {"aten::upsample_linear1d_backward",
       [] {
         backward(at::upsample_linear1d(leaf({2, 3, 6}), {9}, true));
       }},
      {"aten::upsample_nearest3d_backward",
       [] {
         backward(at::upsample_nearest3d(leaf({1, 2, 3, 3, 3}), {6, 6, 6}));
       }},
      {"aten::upsample_nearest2d",
       [&] {
         at::upsample_nearest2d(image(), at::OptionalIntArrayRef(), std::vector<double>{1.5, 2.5});
       }},
      {"aten::grid_sampler_2d_backward",
       [&] {
         backward(at::grid_sampler(image(), at::rand({2, 4, 4, 2}), 0, 0, false));
       }},
      {"aten::col2im",
       [&] {
         backward(at::im2col(image(), {3, 3}, {1, 1}, {1, 1}, {1, 1}));
       }},
      {"aten::adaptive_max_pool2d_backward",
       [&] {
         backward(std::get<0>(at::adaptive_max_pool2d(image(), {2, 2})));
       }},
      {"aten::avg_pool3d_backward",
       [] {
         backward(at::avg_pool3d(leaf({1, 2, 4, 4, 4}), 2));
       }},
      {"aten::max_pool2d_with_indices",
       [] {
         backward(at::max_pool1d(leaf({2, 3, 8}), 2));
       }},
  });
}

TEST_F(Phantoms, MoreReductions) {
  const auto x = [] { return leaf({6, 8}); };
  check({
      {"aten::logsumexp", [&] { backward(at::logsumexp(x(), {1})); }},
      {"aten::var_mean.correction", [&] { backward(std::get<0>(at::var_mean(x(), 1))); }},
      {"aten::std.correction", [&] { backward(at::std(x(), 1)); }},
      {"aten::prod.dim_int", [&] { at::prod(x(), 1); }},
      {"aten::cumsum", [&] { backward(at::cumsum(x(), 1)); }},
      {"aten::cummax", [&] { at::cummax(x(), 1); }},
      {"aten::norm.Scalar", [&] { backward(at::norm(x())); }},
      {"aten::norm.ScalarOpt_dim", [&] { backward(at::norm(x(), 3, {1}, true)); }},
      {"aten::median.dim", [&] { at::median(x(), 1); }},
      {"aten::sort", [&] { backward(std::get<0>(at::sort(x(), true, 1))); }},
      {"aten::topk", [&] { backward(std::get<0>(at::topk(x(), 3))); }},
      {"aten::amax", [&] { backward(at::amax(x(), {1})); }},
      {"aten::argmax", [&] { at::argmax(x()); }},
      {"aten::any", [&] { at::any(x() > 1); }},
      {"aten::ne.Scalar", [&] { at::isfinite(x()); }},
      {"aten::histc", [&] { at::histc(x(), 10, -1, 1); }},
      {"aten::_cdist_forward",
       [&] {
         backward(at::cdist(leaf({5, 3}), leaf({4, 3})));
       }},
      {"aten::bucketize.Tensor", [&] { at::bucketize(x(), at::arange(4)); }},
  });
}

TEST_F(Phantoms, Factories) {
  const Tensor x = at::zeros({3, 4});
  check({
      {"aten::arange", [] { at::arange(7); }},
      {"aten::arange.start_step", [] { at::arange(0, 1, 0.3); }},
      {"aten::linspace", [] { at::linspace(0, 1, 9); }},
      {"aten::logspace", [] { at::logspace(0, 1, 9); }},
      {"aten::zeros",
       [] {
         at::zeros({3, 4}, at::kLong);
       }},
      {"aten::ones",
       [] {
         at::ones({3, 4}, at::kBFloat16);
       }},
      {"aten::full",
       [] {
         at::full({3, 4}, 2.5);
       }},
      {"aten::full",
       [] {
         at::full({3, 4}, 2);
       }},
      {"aten::full_like", [&] { at::full_like(x, 3); }},
      {"aten::zeros_like", [&] { at::zeros_like(x.t()); }},
      {"aten::new_zeros", [&] { x.new_zeros({5}); }},
      {"aten::scalar_tensor", [] { at::scalar_tensor(3.5); }},
      {"aten::eye", [] { at::eye(5); }},
      {"aten::tril_indices", [] { at::tril_indices(5, 5); }},
      {"aten::hann_window", [] { at::hann_window(16); }},
      {"aten::zero_", [&] { x.zero_(); }},
      {"aten::fill_.Scalar", [&] { x.fill_(2); }},
  });
}

TEST_F(Phantoms, Optimizers) {
  const std::vector<Tensor> w = {rnd({4, 3}), rnd({5})};
  const std::vector<Tensor> g = {rnd({4, 3}), rnd({5})};
  const std::vector<Tensor> m = {at::zeros({4, 3}), at::zeros({5})};
  const std::vector<Tensor> v = {at::zeros({4, 3}), at::zeros({5})};
  const std::vector<Tensor> steps = {at::full({}, 1.F), at::full({}, 1.F)};
  Tensor found = at::zeros({1});
  check({
      {"aten::_fused_adam_",
       [&] { at::_fused_adam_(w, g, m, v, {}, steps, 1e-3, 0.9, 0.99, 0, 1e-8, false, false); }},
      {"aten::_fused_adagrad_",
       [&] { at::_fused_adagrad_(w, g, m, steps, 1e-3, 0, 0, 1e-8, false); }},
      {"aten::_foreach_norm.Scalar", [&] { at::stack(at::_foreach_norm(g)); }},
      {"aten::_foreach_lerp_.Scalar", [&] { at::_foreach_lerp_(m, g, 0.1); }},
      {"aten::_foreach_addcmul_.Scalar", [&] { at::_foreach_addcmul_(v, g, g, 0.1); }},
      {"aten::_foreach_div.ScalarList",
       [&] {
         at::_foreach_div(v, std::vector<at::Scalar>{0.1, 0.2});
       }},
      {"aten::_foreach_pow.ScalarAndTensor", [&] { at::_foreach_pow(0.9, steps); }},
      {"aten::_foreach_zero_", [&] { at::_foreach_zero_(g); }},
      {"aten::_foreach_copy_", [&] { at::_foreach_copy_(g, m); }},
      {"aten::_amp_foreach_non_finite_check_and_unscale_",
       [&] { at::_amp_foreach_non_finite_check_and_unscale_(g, found, at::ones({1})); }},
      {"aten::addcdiv_", [&] { w[0].addcdiv_(m[0], v[0].sqrt().add_(1e-8), -1e-3); }},
      {"aten::lerp_.Scalar", [&] { m[0].lerp_(g[0], 0.1); }},
  });
}

TEST_F(Phantoms, MoreActivationsAndNorms) {
  const auto x = [] { return leaf({4, 8}); };
  check({
      {"aten::hardtanh_backward", [&] { backward(at::hardtanh(x())); }},
      {"aten::hardsigmoid_backward", [&] { backward(at::hardsigmoid(x())); }},
      {"aten::hardswish_backward", [&] { backward(at::hardswish(x())); }},
      {"aten::softplus_backward", [&] { backward(at::softplus(x())); }},
      {"aten::mish_backward", [&] { backward(at::mish(x())); }},
      {"aten::silu_backward", [&] { backward(at::silu(x())); }},
      {"aten::elu_backward", [&] { backward(at::elu(x())); }},
      {"aten::glu_backward", [&] { backward(at::glu(x())); }},
      {"aten::log_sigmoid_backward", [&] { backward(at::log_sigmoid(x())); }},
      {"aten::_prelu_kernel_backward", [&] { backward(at::prelu(x(), leaf({1}))); }},
      {"aten::native_layer_norm_backward",
       [&] { backward(at::layer_norm(x().to(at::kBFloat16), {8})); }},
      {"aten::mul.Tensor", [&] { backward(at::rms_norm(x(), {8}, leaf({8}))); }},
      {"aten::native_batch_norm_backward",
       [] {
         backward(at::instance_norm(leaf({2, 3, 6, 6}), leaf({3}), leaf({3}), {}, {}, true, 0.1,
                                    1e-5, false));
       }},
      {"aten::_weight_norm_interface_backward",
       [] {
         backward(at::_weight_norm(leaf({4, 3}), leaf({4, 1}), 0));
       }},
      {"aten::addmv",
       [] {
         at::addmv(leaf({4}), leaf({4, 3}), leaf({3}));
       }},
      {"aten::baddbmm",
       [] {
         backward(at::baddbmm(leaf({2, 4, 5}), leaf({2, 4, 3}), leaf({2, 3, 5})));
       }},
      {"aten::dot", [] { at::dot(leaf({4}), leaf({4})).backward(); }},
      {"aten::mv",
       [] {
         backward(at::mv(leaf({4, 3}), leaf({3})));
       }},
  });
}

TEST_F(Phantoms, LinearAlgebra) {
  const Tensor square = at::eye(4) + 0.1 * at::rand({4, 4});
  check({
      {"aten::linalg_qr", [&] { at::linalg_qr(square); }},
      {"aten::_linalg_svd", [&] { at::linalg_svd(square); }},
      {"aten::linalg_lu_factor_ex", [&] { at::linalg_lu_factor_ex(square); }},
      {"aten::linalg_inv_ex", [&] { at::linalg_inv_ex(square); }},
      {"aten::linalg_cholesky_ex", [&] { at::linalg_cholesky_ex(at::mm(square, square.t())); }},
      {"aten::linalg_solve_triangular", [&] { at::linalg_solve_triangular(square, square, true); }},
      {"aten::linalg_cross",
       [] {
         at::linalg_cross(rnd({4, 3}), rnd({4, 3}));
       }},
      {"aten::_linalg_det", [&] { at::linalg_det(square); }},
  });
}

TEST_F(Phantoms, WhatValuesDecideIsRefused) {
  const Tensor x = rnd({4, 4});
  const Tensor numbers = at::randint(0, 5, {9}, at::kLong);
  check_refused("returns as many values as its arguments' values tell",
                {{"aten::nonzero", [&] { at::nonzero(x); }},
                 {"aten::masked_select", [&] { at::masked_select(x, x > 0); }},
                 {"aten::_unique2", [&] { at::_unique2(numbers); }},
                 {"aten::bincount", [&] { at::bincount(numbers); }},
                 {"aten::repeat_interleave.Tensor", [&] { at::repeat_interleave(numbers); }},
                 {"aten::_pack_padded_sequence",
                  [&] {
                    at::_pack_padded_sequence(rnd({5, 2, 3}), at::tensor({5, 2}, at::kLong), false);
                  }},
                 {"aten::_ctc_loss", [] {
                    at::_ctc_loss(at::log_softmax(rnd({5, 2, 4}), 2), at::ones({2, 2}, at::kLong),
                                  at::IntArrayRef{5, 5}, at::IntArrayRef{2, 2});
                  }}});
  check_refused("returns as many values as its mask tells",
                {{"aten::index.Tensor", [&] { at::index(x, {x > 0}); }}});
  check_refused("reads values",
                {{"aten::_local_scalar_dense", [&] { static_cast<void>(x.sum().item()); }},
                 {"aten::equal", [&] { static_cast<void>(at::equal(x, x)); }}});
  check_refused("throws where its arguments' values are wrong",
                {{"aten::_linalg_check_errors", [&] { at::linalg_inv(x); }}});
}

}  // namespace
}  // namespace spillway::phantoms
