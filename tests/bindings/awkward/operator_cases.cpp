// Cases about operators and element types with memory habits of their own.

#include <ATen/autocast_mode.h>

#include "case.h"
#include "run.h"

namespace awkward {

namespace {

namespace F = torch::nn::functional;

/// A batch of images of 4 MiB.
at::Tensor images() { return here::randn({16, 4, 128, 128}); }

}  // namespace

SPILLWAY_AWKWARD_CASE(integer_and_bool, "index and mask tensors") {
  Ballast ballast(12, 4);
  torch::nn::Embedding table = placed(torch::nn::Embedding(torch::nn::EmbeddingOptions(3000, 512)));
  at::Tensor counts = here::zeros({300'000}, torch::kLong);
  for (const int step : run.steps(4)) {
    ballast.sweep();
    const at::Tensor tokens = here::randint(0, 3000, {160'000});
    const at::Tensor picked = table->forward(tokens.narrow(0, step * 100, 2000));
    const at::Tensor mask = picked > 0.3;
    const at::Tensor kept = torch::where(mask, picked, here::zeros({})).masked_fill(mask, 0.5);
    (kept.sum() + picked.masked_select(mask).sum()).backward();
    counts.narrow(0, 0, 160'000).add_(tokens).bitwise_xor_(here::full({}, step, torch::kLong));
    run.tensor("mask", mask);
    run.tensor("tokens", tokens);
    run.tensor("any", mask.any(1).logical_not().to(torch::kByte));
  }
  run.tensor("counts", counts);
  run.tensor("grad", table->weight.grad());
}

SPILLWAY_AWKWARD_CASE(sparse_coo, "sparse tensors and sparse gradients") {
  Ballast ballast(12, 4);
  torch::nn::Embedding table =
      placed(torch::nn::Embedding(torch::nn::EmbeddingOptions(4096, 1024).sparse(true)));
  torch::optim::SGD optimizer(table->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const at::Tensor tokens = here::randint(0, 4096, {400});
    more_to_drop(table->forward(tokens)).pow(2).sum().backward();
    const at::Tensor grad = table->weight.grad();
    run.text("layout", grad.is_sparse() ? "sparse" : "dense");
    ballast.sweep();
    run.tensor("grad", grad.coalesce());
    optimizer.step();
    const at::Tensor places = here::randint(0, 1024, {2, 400'000});
    const at::Tensor values = here::randint(0, 9, {400'000}).to(torch::kFloat);
    const at::Tensor sparse =
        torch::sparse_coo_tensor(places, values, {1024, 1024}, torch::kFloat).coalesce();
    ballast.sweep();
    run.tensor("sparse", sparse);
    run.tensor("dense", sparse.to_dense());
    run.tensor("product", torch::mm(sparse, ballast.tensors()[step].view({1024, 1024})));
  }
  run.tensor("table", table->weight);
}

SPILLWAY_AWKWARD_CASE(quantized, "quantized tensors") {
  Ballast ballast(14, 4);
  for (const int step : run.steps(4)) {
    const at::Tensor source = ballast.tensors()[step].view({1024, 1024});
    const at::Tensor whole = torch::quantize_per_tensor(source, 0.05, 10, torch::kQUInt8);
    const at::Tensor rows =
        torch::quantize_per_channel(source, here::rand({1024}, torch::kDouble) * 0.1 + 0.01,
                                    here::zeros({1024}, torch::kLong), 0, torch::kQInt8);
    ballast.sweep();
    run.tensor("whole", whole);
    run.tensor("rows", rows);
    run.tensor("back", whole.dequantize() + rows.dequantize());
    run.tensor("slice", whole.narrow(0, 100, 700).t());
    const at::Tensor fake =
        torch::fake_quantize_per_tensor_affine(source.clone().requires_grad_(), 0.02, 0, -128, 127);
    run.tensor("fake", fake);
  }
}

SPILLWAY_AWKWARD_CASE(half_and_bfloat16, "two-byte floats, autocast and an fp32 master copy") {
  Mlp model = make_mlp();
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  const at::Tensor half = here::randn({1024, 1024}).to(torch::kHalf);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    at::autocast::set_autocast_enabled(device().type(), true);
    at::autocast::set_autocast_dtype(device().type(), at::kBFloat16);
    const at::Tensor out = model->forward(here::randn({32, 1024}));
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device().type(), false);
    const at::Tensor loss = torch::mse_loss(out.to(torch::kFloat), here::randn({32, 1024}));
    loss.backward();
    optimizer.step();
    half.mul_(0.5).add_(here::randn({1024}).to(torch::kHalf));
    run.number("loss", loss);
    run.tensor("out", out);
    run.tensor("half", half);
  }
  note_module(run, *model);
}

SPILLWAY_AWKWARD_CASE(complex, "complex tensors, lazy conjugation, transforms") {
  std::vector<at::Tensor> signals;
  for (int i = 0; i < 10; ++i) {
    signals.push_back(here::randn({512, 1024}, torch::kComplexFloat));
  }
  const at::Tensor filter = here::randn({512, 1024}, torch::kComplexFloat).requires_grad_();
  for (const int step : run.steps(4)) {
    for (std::size_t i = 0; i < signals.size(); ++i) {
      const at::Tensor spectrum = torch::fft::fft(signals[i]);
      const at::Tensor mixed = spectrum.conj() * signals[(i + 3) % 10];
      signals[i] = torch::fft::ifft(mixed).mul_(0.01).add_(signals[i], 0.5);
      torch::view_as_real(signals[i]).select(2, 1).mul_(0.9);
      torch::imag(signals[i].conj()).add_(0.125);  // Sets the negative bit.
    }
    const at::Tensor loss = (signals[step] * filter).abs().pow(2).mean();
    loss.backward();
    run.number("loss", loss);
    run.tensor("conjugate", signals[step].conj().t());
  }
  run.tensors("signal", signals);
  run.tensor("grad", filter.grad());
}

/// Calls an operator as boxed fallbacks and interpreters do, below autograd: what the caller gives
/// away ends with the kernel.
template <typename... Arguments>
static at::Tensor called_boxed(const char* name, const char* overload, Arguments... arguments) {
  torch::jit::Stack stack;
  (stack.emplace_back(std::move(arguments)), ...);
  const at::AutoDispatchBelowADInplaceOrView below;
  c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).callBoxed(&stack);
  return stack.front().toTensor();
}

SPILLWAY_AWKWARD_CASE(given_away, "arguments that nobody but the operator holds") {
  constexpr std::int64_t kCount = 1 << 20;
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 8; ++i) weights.push_back(here::randn({kCount}).requires_grad_());
  torch::optim::SGD optimizer(weights, 0.1);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const at::Tensor all = here::ones({kCount}, torch::kBool);
    const at::Tensor source = here::randn({kCount});
    // Values tell how much it returns: what it gives away cannot be recomputed.
    const auto picked = [&] { return called_boxed("aten::masked_select", "", source, all); };
    at::Tensor loss = here::zeros({});
    for (const at::Tensor& weight : weights) {
      c10::List<at::Tensor> list;
      list.push_back(picked());
      const at::Tensor sine = called_boxed("aten::sin", "", picked());
      const at::Tensor joined = called_boxed("aten::cat", "", std::move(list), 0);
      // Autograd keeps them until the backward pass.
      loss = loss + more_to_drop(sine * weight).mean() + (joined * weight).mean();
    }
    loss.backward();
    optimizer.step();
    run.number("loss", loss);
  }
  run.tensors("weight", weights);
}

SPILLWAY_AWKWARD_CASE(interpolate_grid_sample, "resampling in two and three dimensions") {
  const at::Tensor parameter = images().requires_grad_();
  const at::Tensor volume = here::randn({2, 4, 40, 48, 56}).requires_grad_();
  std::vector<at::Tensor> kept;
  for ([[maybe_unused]] const int step : run.steps(3)) {
    const at::Tensor large =
        F::interpolate(parameter, F::InterpolateFuncOptions()
                                      .size(std::vector<std::int64_t>{160, 160})
                                      .mode(torch::kBilinear)
                                      .align_corners(false));
    const at::Tensor grid = here::rand({16, 120, 120, 2}) * 2 - 1;
    const at::Tensor sampled =
        F::grid_sample(large, grid, F::GridSampleFuncOptions().align_corners(true));
    const at::Tensor grown = F::interpolate(volume, F::InterpolateFuncOptions()
                                                        .size(std::vector<std::int64_t>{50, 60, 70})
                                                        .mode(torch::kTrilinear)
                                                        .align_corners(false));
    const at::Tensor loss = sampled.pow(2).mean() + grown.abs().mean();
    loss.backward();
    run.number("loss", loss);
    kept.push_back(large.detach());
    kept.push_back(grown.detach());
  }
  run.tensors("kept", kept);
  run.tensor("grad", parameter.grad());
  run.tensor("volume grad", volume.grad());
}

SPILLWAY_AWKWARD_CASE(convolutions, "convolution, transposed, 3-D, grouped and channels-last") {
  torch::nn::Sequential net = placed(torch::nn::Sequential(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 16, 3).padding(1).stride(2)),
      torch::nn::ReLU(torch::nn::ReLUOptions(true)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 16, 3).padding(2).dilation(2).groups(4)),
      torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(16, 6, 2).stride(2)),
      torch::nn::GroupNorm(2, 6)));
  torch::nn::Conv3d solid = placed(torch::nn::Conv3d(torch::nn::Conv3dOptions(2, 8, 3).padding(1)));
  torch::nn::ConvTranspose3d grown =
      placed(torch::nn::ConvTranspose3d(torch::nn::ConvTranspose3dOptions(8, 2, 2).stride(2)));
  for (const int step : run.steps(3)) {
    at::Tensor x = images();
    if (step == 1) {
      x = x.contiguous(at::MemoryFormat::ChannelsLast);
    }
    const at::Tensor out = net->forward(x);
    const at::Tensor wide = grown->forward(solid->forward(here::randn({2, 2, 32, 32, 32})));
    const at::Tensor loss = out.pow(2).mean() + wide.pow(2).mean();
    loss.backward();
    run.number("loss", loss);
    run.tensor("out", out);
  }
  note_module(run, *net);
  note_module(run, *solid);
  note_module(run, *grown);
}

SPILLWAY_AWKWARD_CASE(sampling, "operators that draw random numbers") {
  Ballast ballast(12, 4);
  at::Generator own = new_generator(run.seed() + 7);
  for (const int step : run.steps(3)) {
    ballast.sweep();
    const at::Tensor scores = ballast.tensors()[step].view({1024, 1024}).softmax(1);
    run.tensor("multinomial", torch::multinomial(scores, 16, true));
    run.tensor("without replacement", torch::multinomial(scores, 16, false, own));
    run.tensor("bernoulli", torch::bernoulli(scores));
    run.tensor("permutation", here::randperm(500'000));
    run.tensor("exponential", torch::empty_like(scores).exponential_(1.5, own));
    run.tensor("poisson", torch::poisson(scores * 100));
    run.tensor("integers", here::randint(-5, 5, {1'000'000}, own));
    run.tensor("generator", default_generator().get_state());
  }
}

SPILLWAY_AWKWARD_CASE(sort_and_scatter,
                      "sort, topk, gather, scatter, index_put with accumulation") {
  Ballast ballast(10, 4);
  // Whole numbers: their sums do not depend on the order in which threads add them.
  const at::Tensor target = here::zeros({1024, 1024});
  const at::Tensor source = here::randn({1024, 1024}).requires_grad_();
  for (const int step : run.steps(3)) {
    ballast.sweep();
    const at::Tensor whole = here::randint(-8, 8, {1024, 1024}).to(torch::kFloat);
    const auto [sorted, order] = source.sort(1, step % 2 == 0);
    const auto [best, places] = source.topk(100, 1);
    (sorted.narrow(1, 0, 50).sum() + best.sum() + source.gather(1, places).pow(2).sum()).backward();
    run.tensor("sorted", sorted);
    run.tensor("order", order);
    const at::Tensor rows = here::randint(0, 1024, {600'000});
    const at::Tensor columns = here::randint(0, 1024, {600'000});
    target.index_put_({rows, columns}, whole.view(-1).narrow(0, 0, 600'000), true);
    target.scatter_add_(0, here::randint(0, 1024, {1024, 1024}), whole);
    target.index_add_(0, here::randint(0, 1024, {1024}), whole);
    target.index_copy_(1, torch::tensor({5, 3}, device()), whole.narrow(1, 0, 2));
    run.tensor("unique", std::get<0>(at::_unique2(target.round(), true, true, true)));
    run.tensor("nonzero", (target > 20).nonzero());
    run.tensor("cumulative", whole.cumsum(1));
  }
  run.tensor("target", target);
  run.tensor("grad", source.grad());
}

SPILLWAY_AWKWARD_CASE(cat_and_split, "joining and taking apart, with gradients through both") {
  const at::Tensor parameter = here::randn({1024, 1024}).requires_grad_();
  Ballast ballast(10, 4);
  for ([[maybe_unused]] const int step : run.steps(3)) {
    ballast.sweep();
    const std::vector<at::Tensor> parts = parameter.split({100, 500, 424}, 1);
    const at::Tensor joined = torch::cat({parts[2], parts[0], parts[1].neg()}, 1);
    const std::vector<at::Tensor> rows = joined.chunk(4, 0);
    const at::Tensor stacked = torch::stack({rows[3], rows[1].exp(), rows[0]}, 1);
    const std::vector<at::Tensor> planes = stacked.unbind(1);
    const at::Tensor loss = (planes[0] * planes[2]).mean() + planes[1].mean() +
                            torch::roll(joined, {3, 7}, {0, 1}).flip(0).tril().pow(2).mean();
    loss.backward();
    run.number("loss", loss);
    run.tensor("stacked", stacked);
    run.tensor("repeated", joined.repeat({1, 2}).narrow(1, 500, 1000));
  }
  run.tensor("grad", parameter.grad());
}

SPILLWAY_AWKWARD_CASE(linear_algebra, "library routines that work inside tensor memory") {
  Ballast ballast(12, 4);
  for ([[maybe_unused]] const int step : run.steps(3)) {
    ballast.sweep();
    const at::Tensor square = here::randn({512, 512}, torch::kDouble);
    const at::Tensor positive = square.mm(square.t()) + 512 * here::eye(512, torch::kDouble);
    const at::Tensor factor = torch::linalg_cholesky(positive);
    const auto [q, r] = torch::linalg_qr(square);
    run.tensor("factor", factor);
    run.tensor("r", r);
    run.tensor("inverse", torch::linalg_inv(positive));
    run.tensor("solved", torch::linalg_solve(positive, square));
    run.tensor("values", torch::linalg_eigvalsh(positive));
    run.tensor("batched", torch::bmm(here::randn({16, 256, 256}), here::randn({16, 256, 256})));
    run.tensor("einsum", torch::einsum("bij,bkj->bik",
                                       {here::randn({16, 256, 128}), here::randn({16, 256, 128})}));
  }
}

SPILLWAY_AWKWARD_CASE(attention, "scaled dot-product attention, fused and with a mask") {
  const at::Tensor weight = (here::randn({512, 1536}) * 0.05).requires_grad_();
  torch::optim::Adam optimizer({weight}, 1e-3);
  Ballast ballast(8, 4);
  const at::Tensor mask = here::ones({128, 128}, torch::kBool).tril();
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    ballast.sweep();
    const at::Tensor x = here::randn({8, 128, 512});
    const auto parts = x.matmul(weight).chunk(3, 2);
    const auto heads = [](const at::Tensor& t) { return t.view({8, 128, 8, 64}).transpose(1, 2); };
    const at::Tensor fused = at::scaled_dot_product_attention(
        heads(parts[0]), heads(parts[1]), heads(parts[2]), {}, 0.0, /*is_causal=*/true);
    const at::Tensor masked = at::scaled_dot_product_attention(
        heads(parts[0]), heads(parts[1]), heads(parts[2]), mask, /*dropout_p=*/0.1);
    const at::Tensor loss = fused.pow(2).mean() + masked.pow(2).mean();
    loss.backward();
    optimizer.step();
    run.number("loss", loss);
    run.tensor("fused", fused);
    run.tensor("masked", masked);
  }
  run.tensor("weight", weight);
}

}  // namespace awkward
