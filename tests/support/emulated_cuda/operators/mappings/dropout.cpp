// Dropout of CUDA rounds as at::dropout does on the CPU: its noise is 0 or 1 / (1 - p), by which
// the input is multiplied.
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "table.h"

namespace spillway::emulated {
namespace {

torch::jit::Stack native_dropout(const Arguments& arguments, const Draws& draws) {
  const at::Tensor input = arguments.tensor("input");
  const double p = arguments.number("p");
  const c10::IValue& train = arguments.value("train");
  const bool is_training = train.isNone() || train.toBool();
  if (!is_training || p == 0) return {input.clone(), at::ones_like(input, at::kBool)};
  if (p == 1) return {at::zeros_like(input), at::zeros_like(input, at::kBool)};
  const at::Tensor noise = at::empty_like(input).bernoulli_(1 - p, draws.generator);
  const at::Tensor mask = noise.to(at::kBool);
  return {input.mul(noise.div_(1 - p)), mask};
}

torch::jit::Stack native_dropout_backward(const Arguments& arguments, const Draws&) {
  const at::Tensor gradient = arguments.tensor("grad_output");
  // The scale is 1 / (1 - p), rounded; its inverse gives the divisor of the noise again.
  const at::Tensor noise = arguments.tensor("mask").to(gradient.scalar_type());
  return {gradient.mul(noise.div_(1 / arguments.number("scale")))};
}

}  // namespace

Mappings dropout_mappings() {
  return {{"aten::native_dropout", native_dropout},
          {"aten::native_dropout_backward", native_dropout_backward}};
}

}  // namespace spillway::emulated
