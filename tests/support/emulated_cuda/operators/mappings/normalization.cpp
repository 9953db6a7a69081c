#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/pow.h>

#include "../gradients.h"
#include "table.h"

namespace spillway::emulated {
namespace {

torch::jit::Stack batch_norm(const Arguments& arguments, const Draws&) {
  auto [output, mean, deviation] = at::native_batch_norm(
      arguments.tensor("input"), arguments.optional_tensor("weight"),
      arguments.optional_tensor("bias"), arguments.optional_tensor("running_mean"),
      arguments.optional_tensor("running_var"), arguments.flag("training"),
      arguments.number("exponential_average_factor"), arguments.number("epsilon"));
  const at::Tensor reserve = at::empty({0}, at::TensorOptions(at::kByte));
  return {output, mean, deviation, reserve};
}

torch::jit::Stack batch_norm_backward(const Arguments& arguments, const Draws&) {
  auto [input, weight, bias] = at::native_batch_norm_backward(
      arguments.tensor("grad_output"), arguments.tensor("input"),
      arguments.optional_tensor("weight"), arguments.optional_tensor("running_mean"),
      arguments.optional_tensor("running_var"), arguments.optional_tensor("save_mean"),
      arguments.optional_tensor("save_var"), /*train=*/true, arguments.number("epsilon"),
      {true, true, true});
  return {input, weight, bias};
}

/// The CPU has only the forward function, as a composite: x * r * weight, where r = 1 /
/// sqrt(mean(x^2) + epsilon). Autograd gives the gradients of its parts; of epsilon nothing is left
/// but r.
torch::jit::Stack rms_norm_backward(const Arguments& arguments, const Draws&) {
  const at::Tensor gradient = arguments.tensor("grad_out");
  const at::Tensor input = arguments.tensor("input");
  const at::Tensor weight = arguments.optional_tensor("weight").value_or(at::Tensor());
  const at::Tensor r = arguments.tensor("rstd");
  // Half precision computes in float; what comes by two ways is added there.
  const at::Tensor wide = input.to(r.scalar_type());
  const at::ScalarType type = input.scalar_type();
  const Tensors outer = gradients_of(
      [&](const Tensors& leaves) -> Tensors {
        at::Tensor result = leaves[0].mul(leaves[1]);
        if (leaves[2].defined()) result = result.mul(leaves[2]);
        return {result.to(type)};
      },
      {wide, r, weight}, {gradient});
  const at::Tensor mean_gradient = outer[1].mul(-0.5).mul(r.pow(3));
  std::vector<std::int64_t> dimensions;
  for (std::size_t i = 0; i < arguments.integers("normalized_shape").size(); ++i)
    dimensions.push_back(input.dim() - 1 - std::int64_t(i));
  const Tensors inner = gradients_of(
      [&](const Tensors& leaves) -> Tensors {
        return {leaves[0].pow(2).mean(dimensions, /*keepdim=*/true)};
      },
      {wide}, {mean_gradient});
  const bool needs_input = arguments.flag("output_mask", 0);
  const bool needs_weight = arguments.flag("output_mask", 1) && weight.defined();
  return {needs_input ? outer[0].add(inner[0]).to(type) : at::Tensor(),
          needs_weight ? outer[2] : at::Tensor()};
}

}  // namespace

Mappings normalization_mappings() {
  return {{"aten::cudnn_batch_norm", batch_norm},
          {"aten::cudnn_batch_norm_backward", batch_norm_backward},
          {"aten::_fused_rms_norm_backward", rms_norm_backward}};
}

}  // namespace spillway::emulated
