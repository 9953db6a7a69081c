#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace spillway::emulated {

using Tensors = std::vector<at::Tensor>;

/// Of a list of tensors, without side effects.
using Function = std::function<Tensors(const Tensors&)>;

/// Computes `function` of `inputs` with autograd, as a trainer on the CPU would: what CPU kernels
/// are chosen may depend on who requires a gradient. Nobody who has hooked what autograd saves
/// sees it.
Tensors results_of(const Function& function, const Tensors& inputs);

/// The gradients of `function` for all `inputs`, with the bits that autograd of the CPU gives. Of
/// `weights` there is one for each result; an undefined one means zero. An undefined gradient does,
/// too. Works on a thread of its own with LibTorch's own engine: nobody who has replaced the engine
/// sees it.
Tensors gradients_of(const Function& function, const Tensors& inputs, const Tensors& weights);

}  // namespace spillway::emulated
