// Layouts, types and sizes beside the usual ones.

#include <ATen/ATen.h>

#include <vector>

#include "phantom_calls.h"

namespace spillway::phantoms {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

TEST_F(Phantoms, ConvolutionsOfAllKinds) {
  std::vector<Case> cases;
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const auto made = [type](at::IntArrayRef sizes) {
      return at::randn(sizes, type).requires_grad_();
    };
    const auto add = [&](std::function<Tensor()> call) {
      cases.push_back({"aten::convolution", [call] { call(); }});
      cases.push_back({"aten::convolution_backward", [call] { backward(call()); }});
      cases.push_back({"aten::convolution", [call] {
                         const at::NoGradGuard no_grad;
                         call();
                       }});
    };
    add([=] { return at::conv1d(made({2, 4, 20}), made({6, 4, 3}), made({6}), 2, 1); });
    add([=] { return at::conv2d(made({2, 4, 9, 9}), made({6, 4, 3, 3}), made({6}), 1, 1); });
    add([=] { return at::conv2d(made({2, 4, 9, 9}), made({4, 1, 3, 3}), {}, 1, 1, 2, 4); });
    add([=] {
      return at::conv2d(made({2, 4, 9, 9}).contiguous(kLast), made({6, 4, 3, 3}), made({6}));
    });
    add([=] {
      return at::conv2d(made({2, 4, 9, 9}), made({6, 4, 3, 3}).contiguous(kLast), made({6}));
    });
    add([=] {
      return at::conv2d(made({9, 9, 4, 2}).permute({3, 2, 1, 0}), made({6, 4, 3, 3}), {});
    });
    add([=] { return at::conv3d(made({1, 4, 6, 6, 6}), made({6, 4, 3, 3, 3}), made({6})); });
    add([=] { return at::conv_transpose1d(made({2, 4, 9}), made({4, 6, 3}), made({6}), 2); });
    add([=] { return at::conv_transpose2d(made({2, 4, 9, 9}), made({4, 6, 3, 3}), {}, 2, 1, 1); });
    add([=] { return at::conv_transpose3d(made({1, 4, 4, 4, 4}), made({4, 6, 2, 2, 2}), {}, 2); });
    add([=] { return at::conv2d(made({0, 4, 9, 9}), made({6, 4, 3, 3}), made({6})); });
  }
  check(cases);
}

TEST_F(Phantoms, ChannelsLast) {
  const auto image = [] { return leaf({2, 8, 6, 6}).contiguous(kLast); };
  const auto body = [] {
    return leaf({2, 8, 4, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast3d);
  };
  const auto norm = [](const Tensor& x) {
    return at::batch_norm(x, leaf({8}), leaf({8}), at::zeros({8}), at::ones({8}), true, 0.1, 1e-5,
                          false);
  };
  check({
      {"aten::native_batch_norm_backward", [&] { backward(norm(image())); }},
      {"aten::native_batch_norm_backward", [&] { backward(norm(body())); }},
      {"aten::native_group_norm_backward",
       [&] { backward(at::group_norm(image(), 2, leaf({8}), leaf({8}))); }},
      {"aten::max_pool2d_with_indices_backward", [&] { backward(at::max_pool2d(image(), 2)); }},
      {"aten::max_pool3d_with_indices_backward", [&] { backward(at::max_pool3d(body(), 2)); }},
      {"aten::avg_pool2d_backward", [&] { backward(at::avg_pool2d(image(), 2)); }},
      {"aten::_adaptive_avg_pool2d_backward",
       [&] {
         backward(at::adaptive_avg_pool2d(image(), {3, 3}));
       }},
      {"aten::upsample_nearest2d_backward",
       [&] {
         backward(at::upsample_nearest2d(image(), {12, 12}));
       }},
      {"aten::upsample_bilinear2d_backward",
       [&] {
         backward(at::upsample_bilinear2d(image(), {12, 12}, false));
       }},
      {"aten::add.Tensor",
       [&] {
         image() + leaf({2, 8, 6, 6});
       }},
      {"aten::cat",
       [&] {
         backward(at::cat({image(), image()}, 1));
       }},
      {"aten::gelu_backward", [&] { backward(at::gelu(image())); }},
      {"aten::clone", [&] { image().clone(); }},
      {"aten::_to_copy", [&] { image().to(at::kDouble); }},
      {"aten::ones_like", [&] { at::ones_like(image()); }},
      {"aten::mean.dim",
       [&] {
         backward(image().mean({2, 3}, true));
       }},
  });
}

TEST_F(Phantoms, NothingAndScalars) {
  const auto empty = [] { return leaf({0, 8}); };
  check({
      {"aten::addmm",
       [&] {
         backward(at::linear(empty(), leaf({4, 8}), leaf({4})));
       }},
      {"aten::native_layer_norm_backward",
       [&] { backward(at::layer_norm(empty(), {8}, leaf({8}), leaf({8}))); }},
      {"aten::_log_softmax_backward_data", [&] { backward(at::log_softmax(empty(), 1)); }},
      {"aten::sum", [&] { empty().sum().backward(); }},
      {"aten::relu", [&] { backward(at::relu(empty())); }},
      {"aten::cat",
       [&] {
         at::cat({empty(), leaf({3, 8})});
       }},
      {"aten::mul.Tensor", [] { backward(leaf({}) * leaf({4})); }},
      {"aten::add.Scalar", [] { leaf({}) + 2.5; }},
      {"aten::div.Scalar", [] { at::ones({}, at::kLong) / 3; }},
      {"aten::embedding",
       [] {
         at::embedding(leaf({9, 4}), at::zeros({0}, at::kLong));
       }},
      {"aten::max",
       [] {
         leaf({4, 5}).max();
       }},
      {"aten::native_batch_norm",
       [] {
         at::batch_norm(leaf({1, 4, 2, 2}), {}, {}, at::zeros({4}), at::ones({4}), false, 0.1, 1e-5,
                        false);
       }},
  });
}

TEST_F(Phantoms, SharedAndConjugatedMemory) {
  const Tensor x = rnd({6, 8});
  const Tensor wave = rnd({6, 8}, at::kComplexFloat);
  check({
      {"aten::unsafe_split.Tensor", [&] { at::unsafe_split(x, 4, 1); }},
      {"aten::unsafe_split.Tensor", [&] { at::unsafe_split(x.slice(0, 2), 4, 1); }},
      {"aten::_unsafe_view",
       [] {
         at::matmul(leaf({2, 3, 8}), leaf({8, 4}));
       }},
      {"aten::lift_fresh", [&] { at::lift_fresh(x); }},
      {"aten::mm", [&] { at::mm(wave.conj(), wave.t()); }},
      {"aten::add.Tensor", [&] { at::imag(wave.conj()) + x; }},
      {"aten::_fft_r2c",
       [&] {
         backward(at::real(at::fft_rfft2(leaf({6, 8}))));
       }},
      {"aten::_fft_c2r", [&] { at::fft_irfft(wave); }},
      {"aten::mul.Tensor",
       [&] {
         x.expand({4, 6, 8}) * x;
       }},
      {"aten::clone",
       [&] {
         x.expand({4, 6, 8}).clone();
       }},
      {"aten::slice_scatter", [&] { at::slice_scatter(x.slice(1, 2), x.slice(1, 0, 1), 1, 0, 1); }},
      {"aten::split_with_sizes_copy",
       [&] {
         at::split_with_sizes_copy(x, {3, 5}, 1);
       }},
      {"aten::unbind_copy.int", [&] { at::unbind_copy(x); }},
  });
}

TEST_F(Phantoms, OtherLayoutsAreRefused) {
  const Tensor x = rnd({4, 4}).to_sparse();
  check_refused("takes a tensor that is not strided",
                {{"aten::mul.Scalar", [&] { x * 2.0; }}, {"aten::_sparse_addmm", [&] {
                                                            at::_sparse_mm(x, rnd({4, 4}));
                                                          }}});
  check_refused(
      "returns a tensor that is not strided",
      {{"aten::_sparse_coo_tensor_with_dims_and_tensors",
        [] {
          backward(at::embedding(leaf({9, 4}), at::zeros({3}, at::kLong), -1, false, true));
        }},
       {"aten::to_mkldnn", [] {
          rnd({4, 4}).to_mkldnn();
        }}});
}

}  // namespace
}  // namespace spillway::phantoms
