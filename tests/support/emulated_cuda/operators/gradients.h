#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace spillway::emulated {

using Tensors = std::vector<at::Tensor>;

/// Computes `function` of `inputs` on the CPU, and its gradients for all of them that autograd of
/// the CPU would give, with the same bits. An undefined tensor of `weights`, one for each result,
/// means zero; undefined inputs stay so. A gradient that is zero throughout may be undefined.
///
/// Works on a thread of its own with LibTorch's own engine, so that nobody who has replaced the
/// engine or hooked what it saves sees it.
Tensors gradients_of(const std::function<Tensors(const Tensors&)>& function, const Tensors& inputs,
                     const Tensors& weights);

}  // namespace spillway::emulated
