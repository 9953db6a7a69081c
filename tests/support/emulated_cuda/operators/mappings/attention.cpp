// Attention without dropout is the flash kernel of the CPU, with dropout its composite: LibTorch
// chooses between them so on the CPU.
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "../gradients.h"
#include "table.h"

namespace spillway::emulated {
namespace {

struct Attention {
  at::Tensor query, key, value;
  std::optional<at::Tensor> bias;
  double dropout;
  bool is_causal;
  std::optional<double> scale;
};

Attention attention_of(const Arguments& arguments, bool has_bias) {
  return {arguments.tensor("query"),
          arguments.tensor("key"),
          arguments.tensor("value"),
          has_bias ? arguments.optional_tensor("attn_bias") : std::nullopt,
          arguments.number("dropout_p"),
          arguments.flag("is_causal"),
          arguments.optional_number("scale")};
}

/// As the composite of the CPU: query and key are each scaled by the root, half precision computes
/// in float.
at::Tensor composite(const Attention& attention, const Tensors& leaves,
                     const at::Generator& generator) {
  const at::Tensor& given = leaves[0];
  const bool is_half = given.scalar_type() == at::kHalf || given.scalar_type() == at::kBFloat16;
  const at::ScalarType type = is_half ? at::kFloat : given.scalar_type();
  const double scale = attention.scale.value_or(1.0 / std::sqrt(double(given.size(-1))));
  const double root = std::sqrt(std::abs(scale));
  const at::Tensor query = given.to(type).mul(scale < 0 ? -root : root);
  const at::Tensor key = leaves[1].to(type).transpose(-2, -1).mul(root);
  at::Tensor scores = at::matmul(query, key);
  if (attention.is_causal) {
    const at::Tensor below =
        at::ones({query.size(-2), key.size(-1)}, at::TensorOptions(at::kBool)).tril();
    const at::Tensor none =
        at::scalar_tensor(-std::numeric_limits<double>::infinity(), scores.options());
    scores = scores.add_(at::where(below, at::scalar_tensor(0.0, scores.options()), none));
  }
  if (leaves[3].defined()) scores = scores.add_(leaves[3]);
  at::Tensor shares = at::_safe_softmax(scores, -1);
  if (attention.dropout > 0) {
    const at::Tensor noise =
        at::empty_like(shares.detach()).bernoulli_(1 - attention.dropout, generator);
    shares = shares.mul(noise.div_(1 - attention.dropout));
  }
  return at::matmul(shares, leaves[2].to(type)).to(given.scalar_type());
}

Tensors leaves_of(const Attention& attention) {
  return {attention.query, attention.key, attention.value, attention.bias.value_or(at::Tensor())};
}

struct Forward {
  at::Tensor output;
  at::Tensor log_sums;
};

/// A bias that needs a gradient, too, makes LibTorch take the composite on the CPU.
Forward forward(const Attention& attention, const Draws& draws) {
  if (attention.dropout > 0 || (attention.bias && attention.bias->requires_grad())) {
    const at::Tensor& query = attention.query;
    const Tensors results = results_of(
        [&](const Tensors& leaves) -> Tensors {
          return {composite(attention, leaves, draws.generator)};
        },
        leaves_of(attention));
    return {results[0], at::zeros({query.size(0), query.size(1), query.size(2)},
                                  at::TensorOptions(at::kFloat))};
  }
  auto [output, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
      attention.query, attention.key, attention.value, 0.0, attention.is_causal, attention.bias,
      attention.scale);
  return {output, log_sums};
}

/// Of query, key, value and bias; `origin` is what the forward function drew from.
Tensors backward(const Attention& attention, const Arguments& arguments, const at::Tensor& gradient,
                 const at::Tensor& origin, bool needs_bias) {
  if (attention.dropout > 0 || needs_bias) {
    const at::Generator generator = attention.dropout > 0 ? generator_of(origin) : at::Generator();
    const auto function = [&](const Tensors& leaves) -> Tensors {
      return {composite(attention, leaves, generator)};
    };
    return gradients_of(function, leaves_of(attention), {gradient});
  }
  auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient, attention.query, attention.key, attention.value, arguments.tensor("out"),
      arguments.tensor("logsumexp"), 0.0, attention.is_causal, attention.bias, attention.scale);
  return {query, key, value, at::Tensor()};
}

at::Tensor no_offset() { return at::zeros({}, at::TensorOptions(at::kLong)); }

/// Backward gets it back as the seed.
at::Tensor origin_of(const Attention& attention, const Draws& draws) {
  return attention.dropout > 0 ? draws.origin : no_offset();
}

torch::jit::Stack efficient(const Arguments& arguments, const Draws& draws) {
  const Attention attention = attention_of(arguments, true);
  const Forward result = forward(attention, draws);
  return {result.output, result.log_sums, origin_of(attention, draws), no_offset()};
}

torch::jit::Stack efficient_backward(const Arguments& arguments, const Draws&) {
  const bool needs_bias = arguments.flag("grad_input_mask", 3);
  Tensors all = backward(attention_of(arguments, true), arguments, arguments.tensor("grad_out_"),
                         arguments.tensor("philox_seed"), needs_bias);
  if (!needs_bias) all[3] = at::Tensor();
  return {all[0], all[1], all[2], all[3]};
}

torch::jit::Stack with_lengths(const Attention& attention, const Draws& draws) {
  const Forward result = forward(attention, draws);
  return {result.output,
          result.log_sums,
          at::Tensor(),
          at::Tensor(),
          attention.query.size(2),
          attention.key.size(2),
          origin_of(attention, draws),
          no_offset(),
          at::Tensor()};
}

torch::jit::Stack flash(const Arguments& arguments, const Draws& draws) {
  return with_lengths(attention_of(arguments, false), draws);
}

torch::jit::Stack flash_backward(const Arguments& arguments, const Draws&) {
  const Tensors all =
      backward(attention_of(arguments, false), arguments, arguments.tensor("grad_out"),
               arguments.tensor("philox_seed"), false);
  return {all[0], all[1], all[2]};
}

torch::jit::Stack cudnn(const Arguments& arguments, const Draws& draws) {
  return with_lengths(attention_of(arguments, true), draws);
}

torch::jit::Stack cudnn_backward(const Arguments& arguments, const Draws&) {
  const Tensors all =
      backward(attention_of(arguments, true), arguments, arguments.tensor("grad_out"),
               arguments.tensor("philox_seed"), false);
  return {all[0], all[1], all[2]};
}

}  // namespace

Mappings attention_mappings() {
  return {{"aten::_scaled_dot_product_efficient_attention", efficient},
          {"aten::_scaled_dot_product_efficient_attention_backward", efficient_backward},
          {"aten::_scaled_dot_product_flash_attention", flash},
          {"aten::_scaled_dot_product_flash_attention_backward", flash_backward},
          {"aten::_scaled_dot_product_cudnn_attention", cudnn},
          {"aten::_scaled_dot_product_cudnn_attention_backward", cudnn_backward}};
}

}  // namespace spillway::emulated
