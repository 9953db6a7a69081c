#pragma once

#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "compared.h"

/// Optimizers in the forms that trainers use: a loop of LibTorch's own, over lists as torch.optim
/// has them with foreach=True, and fused.
namespace spillway::emulated {

using OptimizerStep = std::function<void()>;
using MakeOptimizer = std::function<OptimizerStep(const Tensors& parameters)>;

inline Tensors gradients_in(const Tensors& parameters) {
  Tensors gradients;
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

inline Tensors zeros_like_all(const Tensors& parameters) {
  Tensors zeros;
  for (const at::Tensor& parameter : parameters) zeros.push_back(at::zeros_like(parameter));
  return zeros;
}

template <class Optimizer, class Options>
MakeOptimizer looped(Options options) {
  return [options](const Tensors& parameters) -> OptimizerStep {
    auto optimizer = std::make_shared<Optimizer>(parameters, options);
    return [optimizer] { optimizer->step(); };
  };
}

inline OptimizerStep listed_adam(const Tensors& parameters) {
  return [parameters, first = zeros_like_all(parameters), second = zeros_like_all(parameters),
          step = 0]() mutable {
    const torch::NoGradGuard no_gradients;
    ++step;
    const Tensors gradients = gradients_in(parameters);
    at::_foreach_lerp_(first, gradients, 1 - 0.9);
    at::_foreach_mul_(second, 0.999);
    at::_foreach_addcmul_(second, gradients, gradients, 1 - 0.999);
    Tensors roots = at::_foreach_sqrt(second);
    at::_foreach_div_(roots, std::sqrt(1 - std::pow(0.999, step)));
    at::_foreach_add_(roots, 1e-8);
    at::_foreach_addcdiv_(parameters, first, roots, -0.01 / (1 - std::pow(0.9, step)));
  };
}

inline OptimizerStep listed_sgd(const Tensors& parameters) {
  return [parameters, momenta = zeros_like_all(parameters)] {
    const torch::NoGradGuard no_gradients;
    at::_foreach_mul_(momenta, 0.9);
    at::_foreach_add_(momenta, gradients_in(parameters));
    at::_foreach_add_(parameters, momenta, -0.01);
  };
}

enum class Decay { kInGradient, kInWeights };  // Adam, AdamW

inline MakeOptimizer fused_adam(Decay decay) {
  return [decay](const Tensors& parameters) -> OptimizerStep {
    Tensors steps;  // Counted in tensors of the device, as in torch.optim.
    for (const at::Tensor& parameter : parameters)
      steps.push_back(at::zeros({}, parameter.options()));
    return [=, first = zeros_like_all(parameters), second = zeros_like_all(parameters)] {
      const torch::NoGradGuard no_gradients;
      at::_foreach_add_(steps, 1);
      const auto update = [&](auto&& fused) {
        fused(parameters, gradients_in(parameters), first, second, Tensors(), steps, 0.01, 0.9,
              0.999, 0.1, 1e-8, false, false);
      };
      if (decay == Decay::kInGradient)
        update([](auto&&... all) { at::_fused_adam_(all...); });
      else
        update([](auto&&... all) { at::_fused_adamw_(all...); });
    };
  };
}

inline OptimizerStep fused_sgd(const Tensors& parameters) {
  return [parameters, momenta = zeros_like_all(parameters), is_first = true]() mutable {
    at::_fused_sgd_(parameters, gradients_in(parameters), momenta, 0.1, 0.9, 0.01, 0.0, true, false,
                    is_first);
    is_first = false;
  };
}

}  // namespace spillway::emulated
