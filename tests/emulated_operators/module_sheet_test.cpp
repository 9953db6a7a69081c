// Modules and optimizers give on the emulated device what they give on the CPU.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "compared.h"
#include "half_precision.h"
#include "optimizers.h"

namespace spillway::emulated {
namespace {

namespace nn = torch::nn;

/// Made on the CPU from one seed, then moved.
template <class Module>
Module on(at::Device device, Module module) {
  module->to(device);
  return module;
}

TEST(ModuleSheet, Modules) {
  expect_equal({
      {"lstm",
       [](const Tensors& x) -> Tensors {
         torch::manual_seed(1);
         auto module = on(x[0].device(), nn::LSTM(nn::LSTMOptions(8, 16).batch_first(true)));
         return {std::get<0>(module->forward(x[0]))};
       },
       {drawn({3, 5, 8})}},
      {"lstm of sequences",
       [](const Tensors& x) -> Tensors {
         torch::manual_seed(1);
         auto module = on(x[0].device(), nn::LSTM(nn::LSTMOptions(8, 16)));
         const auto packed =
             nn::utils::rnn::pack_padded_sequence(x[0], at::tensor({5, 3, 2}, at::kLong));
         return {std::get<0>(module->forward_with_packed_input(packed)).data()};
       },
       {drawn({5, 3, 8})}},
      {"gru",
       [](const Tensors& x) -> Tensors {
         torch::manual_seed(1);
         auto module = on(x[0].device(), nn::GRU(nn::GRUOptions(8, 16).num_layers(2)));
         return {std::get<0>(module->forward(x[0]))};
       },
       {drawn({5, 3, 8})}},
      {"transformer layer",
       [](const Tensors& x) -> Tensors {
         torch::manual_seed(1);
         auto module =
             on(x[0].device(),
                nn::TransformerEncoderLayer(
                    nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32).dropout(0.1)));
         return {module->forward(x[0])};
       },
       {drawn({7, 2, 16})}},
      {"sequence",
       [](const Tensors& x) -> Tensors {
         torch::manual_seed(1);
         auto module = on(x[0].device(),
                          nn::Sequential(nn::Conv2d(3, 8, 3), nn::BatchNorm2d(8), nn::ReLU(),
                                         nn::Flatten(), nn::Linear(8 * 36, 4), nn::Dropout(0.2)));
         return {module->forward(x[0])};
       },
       {drawn({2, 3, 8, 8})}},
      {"saved and loaded",
       [](const Tensors& x) -> Tensors {
         std::stringstream file;
         torch::save(x[0].detach(), file);
         at::Tensor loaded;
         torch::load(loaded, file);
         return {loaded};
       },
       {drawn({4, 8})},
       false},
  });
}

/// Parameters after some steps of training, whose gradients are clipped.
Compared optimized(const char* name, const MakeOptimizer& make) {
  const auto train = [make](const Tensors& x) -> Tensors {
    Tensors parameters = {x[0].detach().clone().requires_grad_(true),
                          x[0].detach().mul(2).requires_grad_(true)};
    const OptimizerStep step = make(parameters);
    for (int i = 0; i < 3; ++i) {
      for (at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
      (parameters[0].sin() * parameters[1]).sum().backward();
      nn::utils::clip_grad_norm_(parameters, 1.0);
      step();
    }
    return {parameters[0].detach(), parameters[1].detach()};
  };
  return {name, train, {drawn({50})}, false};
}

TEST(ModuleSheet, OptimizersInALoop) {
  using namespace torch::optim;
  expect_equal({
      optimized("Adam", looped<Adam>(AdamOptions(0.01))),
      optimized("Adam, amsgrad", looped<Adam>(AdamOptions(0.01).amsgrad(true))),
      optimized("AdamW", looped<AdamW>(AdamWOptions(0.01).weight_decay(0.1))),
      optimized("SGD", looped<SGD>(SGDOptions(0.01).momentum(0.9).nesterov(true))),
      optimized("RMSprop", looped<RMSprop>(RMSpropOptions(0.01))),
      optimized("Adagrad", looped<Adagrad>(AdagradOptions(0.01))),
  });
}

TEST(ModuleSheet, OptimizersOverListsAndFused) {
  expect_equal({
      optimized("Adam over lists", listed_adam),
      optimized("SGD over lists", listed_sgd),
      optimized("fused Adam", fused_adam(Decay::kInGradient)),
      optimized("fused AdamW", fused_adam(Decay::kInWeights)),
      optimized("fused SGD", fused_sgd),
  });
}

TEST(ModuleSheet, AutocastWithAScaledLoss) {
  const auto steps = [](const Tensors& x) -> Tensors {
    torch::manual_seed(1);
    const at::Device device = x[0].device();
    auto module = on(device, nn::Sequential(nn::Linear(8, 8), nn::ReLU(), nn::Linear(8, 2)));
    torch::optim::SGD optimizer(module->parameters(), 0.1);
    LossScale scale(device);
    at::Tensor loss;
    for (int i = 0; i < 3; ++i) {
      optimizer.zero_grad();
      {
        const Autocast autocast(device.type());
        loss = module->forward(x[0]).to(at::kFloat).square().mean();
      }
      scale.backward(loss);
      scale.step(module->parameters(), [&] { optimizer.step(); });
    }
    Tensors all = {loss.detach(), scale.value()};
    for (const at::Tensor& parameter : module->parameters()) all.push_back(parameter.detach());
    return all;
  };
  expect_equal({{"amp", steps, {drawn({4, 8})}, false}});
}

}  // namespace
}  // namespace spillway::emulated
