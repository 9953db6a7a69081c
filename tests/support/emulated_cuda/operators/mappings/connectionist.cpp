#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_ctc_loss_backward.h>
#include <ATen/ops/ones_like.h>

#include "table.h"

namespace spillway::emulated {
namespace {

torch::jit::Stack loss_and_gradient(const Arguments& arguments,
                                    const std::vector<std::int64_t>& inputs,
                                    const std::vector<std::int64_t>& targets) {
  const at::Tensor probabilities = arguments.tensor("log_probs");
  const at::Tensor labels = arguments.tensor("targets");
  const std::int64_t blank = arguments.integer("blank");
  const bool zero_infinity = arguments.flag("zero_infinity");
  auto [loss, alpha] = at::_ctc_loss(probabilities, labels, inputs, targets, blank, zero_infinity);
  const at::Tensor gradient =
      at::_ctc_loss_backward(at::ones_like(loss), probabilities, labels, inputs, targets, loss,
                             alpha, blank, zero_infinity);
  return {loss, gradient};
}

std::vector<std::int64_t> lengths_in(const at::Tensor& lengths) {
  const at::Tensor numbers = lengths.to(at::kLong).contiguous();
  const auto* first = numbers.const_data_ptr<std::int64_t>();
  return {first, first + numbers.numel()};
}

/// cuDNN computes the gradient at once, for a gradient of the loss of 1.
torch::jit::Stack ctc_loss(const Arguments& arguments, const Draws&) {
  return loss_and_gradient(arguments, arguments.integers("input_lengths"),
                           arguments.integers("target_lengths"));
}

torch::jit::Stack ctc_loss_of_tensors(const Arguments& arguments, const Draws&) {
  return loss_and_gradient(arguments, lengths_in(arguments.tensor("input_lengths")),
                           lengths_in(arguments.tensor("target_lengths")));
}

}  // namespace

Mappings connectionist_mappings() {
  return {{"aten::_cudnn_ctc_loss", ctc_loss},
          {"aten::_cudnn_ctc_loss.Tensor", ctc_loss_of_tensors}};
}

}  // namespace spillway::emulated
