#include "flat_weights.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace spillway::emulated {

void flatten_weights(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  const std::vector<at::Tensor> weights = torch::jit::peek(*stack, 0, count).toTensorVector();
  TORCH_CHECK(!weights.empty(), "emulated CUDA: ", op.schema().name(), " got no weights");
  const at::NoGradGuard no_gradients;
  std::int64_t total = 0;
  for (const at::Tensor& weight : weights) total += weight.numel();
  const at::Tensor block = at::empty({total}, weights.front().options());
  std::int64_t offset = 0;
  for (const at::Tensor& weight : weights) {
    const at::Tensor part = block.narrow(0, offset, weight.numel()).view(weight.sizes());
    part.copy_(weight);
    weight.set_(part);
    offset += weight.numel();
  }
  torch::jit::drop(*stack, count);
  stack->emplace_back(block);
}

}  // namespace spillway::emulated
