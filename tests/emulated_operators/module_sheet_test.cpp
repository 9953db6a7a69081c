// Modules and optimizers give on the emulated device what they give on the CPU.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "compared.h"

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
template <class Step>
Tensors trained(const Tensors& x, Step step) {
  Tensors parameters = {x[0].detach().clone().requires_grad_(true),
                        x[0].detach().mul(2).requires_grad_(true)};
  auto optimizer = step(parameters);
  for (int i = 0; i < 3; ++i) {
    for (at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    (parameters[0].sin() * parameters[1]).sum().backward();
    nn::utils::clip_grad_norm_(parameters, 1.0);
    optimizer();
  }
  return {parameters[0].detach(), parameters[1].detach()};
}

template <class Optimizer, class Options>
Compared looped(const char* name, Options options) {
  return {name,
          [options](const Tensors& x) {
            return trained(x, [options](const Tensors& parameters) {
              auto optimizer = std::make_shared<Optimizer>(parameters, options);
              return [optimizer] { optimizer->step(); };
            });
          },
          {drawn({50})},
          false};
}

TEST(ModuleSheet, OptimizersInALoop) {
  using torch::optim::AdagradOptions;
  using torch::optim::AdamOptions;
  using torch::optim::AdamWOptions;
  using torch::optim::RMSpropOptions;
  using torch::optim::SGDOptions;
  expect_equal({
      looped<torch::optim::Adam>("Adam", AdamOptions(0.01)),
      looped<torch::optim::Adam>("Adam, amsgrad", AdamOptions(0.01).amsgrad(true)),
      looped<torch::optim::AdamW>("AdamW", AdamWOptions(0.01).weight_decay(0.1)),
      looped<torch::optim::SGD>("SGD", SGDOptions(0.01).momentum(0.9).nesterov(true)),
      looped<torch::optim::RMSprop>("RMSprop", RMSpropOptions(0.01)),
      looped<torch::optim::Adagrad>("Adagrad", AdagradOptions(0.01)),
  });
}

Tensors gradients_of_all(const Tensors& parameters) {
  Tensors gradients;
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

Tensors zeros_like_all(const Tensors& parameters) {
  Tensors zeros;
  for (const at::Tensor& parameter : parameters) zeros.push_back(at::zeros_like(parameter));
  return zeros;
}

/// As torch.optim.Adam(foreach=True) has it.
auto listed_adam(const Tensors& parameters) {
  return [=, first = zeros_like_all(parameters), second = zeros_like_all(parameters),
          step = 0]() mutable {
    const torch::NoGradGuard no_gradients;
    ++step;
    const Tensors gradients = gradients_of_all(parameters);
    at::_foreach_lerp_(first, gradients, 1 - 0.9);
    at::_foreach_mul_(second, 0.999);
    at::_foreach_addcmul_(second, gradients, gradients, 1 - 0.999);
    Tensors roots = at::_foreach_sqrt(second);
    at::_foreach_div_(roots, std::sqrt(1 - std::pow(0.999, step)));
    at::_foreach_add_(roots, 1e-8);
    at::_foreach_addcdiv_(parameters, first, roots, -0.01 / (1 - std::pow(0.9, step)));
  };
}

auto listed_sgd(const Tensors& parameters) {
  return [=, momenta = zeros_like_all(parameters)]() mutable {
    const torch::NoGradGuard no_gradients;
    at::_foreach_mul_(momenta, 0.9);
    at::_foreach_add_(momenta, gradients_of_all(parameters));
    at::_foreach_add_(parameters, momenta, -0.01);
  };
}

/// Steps are counted in tensors of the device, as in torch.optim.
Tensors steps_like(const Tensors& parameters) {
  Tensors steps;
  for (const at::Tensor& parameter : parameters)
    steps.push_back(at::zeros({}, parameter.options()));
  return steps;
}

template <class Function>
auto fused_adam(const Tensors& parameters, Function function) {
  return [=, first = zeros_like_all(parameters), second = zeros_like_all(parameters),
          steps = steps_like(parameters)] {
    const torch::NoGradGuard no_gradients;
    at::_foreach_add_(steps, 1);
    function(parameters, gradients_of_all(parameters), first, second, steps);
  };
}

TEST(ModuleSheet, OptimizersOverListsAndFused) {
  expect_equal({
      {"Adam over lists",
       [](const Tensors& x) { return trained(x, listed_adam); },
       {drawn({50})},
       false},
      {"SGD over lists",
       [](const Tensors& x) { return trained(x, listed_sgd); },
       {drawn({50})},
       false},
      {"fused Adam",
       [](const Tensors& x) {
         return trained(x, [](const Tensors& parameters) {
           return fused_adam(parameters, [](const auto& p, const auto& g, const auto& m,
                                            const auto& v, const auto& s) {
             at::_fused_adam_(p, g, m, v, {}, s, 0.01, 0.9, 0.999, 0.1, 1e-8, false, false);
           });
         });
       },
       {drawn({50})},
       false},
      {"fused AdamW",
       [](const Tensors& x) {
         return trained(x, [](const Tensors& parameters) {
           return fused_adam(parameters, [](const auto& p, const auto& g, const auto& m,
                                            const auto& v, const auto& s) {
             at::_fused_adamw_(p, g, m, v, {}, s, 0.01, 0.9, 0.999, 0.1, 1e-8, false, false);
           });
         });
       },
       {drawn({50})},
       false},
      {"fused SGD",
       [](const Tensors& x) {
         return trained(x, [](const Tensors& parameters) {
           return [=, momenta = zeros_like_all(parameters), is_first = true]() mutable {
             at::_fused_sgd_(parameters, gradients_of_all(parameters), momenta, 0.1, 0.9, 0.01, 0.0,
                             true, false, is_first);
             is_first = false;
           };
         });
       },
       {drawn({50})},
       false},
  });
}

/// Autocast to bf16 for as long as it lives.
class Autocast {
 public:
  explicit Autocast(at::DeviceType device) : device_(device) {
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
};

/// What torch.amp.GradScaler does in a step, with its operators.
Tensors scaled_steps(const Tensors& x) {
  torch::manual_seed(1);
  const at::Device device = x[0].device();
  auto module = on(device, nn::Sequential(nn::Linear(8, 8), nn::ReLU(), nn::Linear(8, 2)));
  torch::optim::SGD optimizer(module->parameters(), 0.1);
  at::Tensor scale = at::full({}, 65536.0, x[0].options());
  at::Tensor growth = at::zeros({}, x[0].options().dtype(at::kInt));
  at::Tensor loss;
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    {
      const Autocast autocast(device.type());
      loss = module->forward(x[0]).to(at::kFloat).square().mean();
    }
    (loss * scale).backward();
    at::Tensor found = at::zeros({}, x[0].options());
    at::_amp_foreach_non_finite_check_and_unscale_(gradients_of_all(module->parameters()), found,
                                                   scale.reciprocal());
    if (found.item<float>() == 0) optimizer.step();
    at::_amp_update_scale_(scale, growth, found, 2.0, 0.5, 2);
  }
  Tensors all = {loss.detach(), scale};
  for (const at::Tensor& parameter : module->parameters()) all.push_back(parameter.detach());
  return all;
}

TEST(ModuleSheet, AutocastWithAScaledLoss) {
  expect_equal({{"amp", scaled_steps, {drawn({4, 8})}, false}});
}

}  // namespace
}  // namespace spillway::emulated
