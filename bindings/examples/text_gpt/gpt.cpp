#include "text_gpt/gpt.h"

#include <cmath>
#include <limits>

#include "text_gpt/text.h"

namespace text_gpt {
namespace {

using torch::nn::Dropout;
using torch::nn::Embedding;
using torch::nn::LayerNorm;
using torch::nn::LayerNormOptions;
using torch::nn::Linear;

class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const GptOptions& options)
      : heads_(options.heads), fused_(options.attention == "fused") {
    const std::int64_t width = options.width;
    query_key_value_ = register_module("query_key_value", Linear(width, 3 * width));
    projection_ = register_module("projection", Linear(width, width));
    dropout_ = register_module("dropout", Dropout(options.dropout));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const std::int64_t batch = x.size(0);
    const std::int64_t length = x.size(1);
    const std::int64_t width = x.size(2);
    // [3, batch, heads, length, width of a head]
    const torch::Tensor all = query_key_value_(x)
                                  .view({batch, length, 3, heads_, width / heads_})
                                  .permute({2, 0, 3, 1, 4});
    const torch::Tensor mixed =
        fused_ ? attend_fused(all[0], all[1], all[2]) : attend_explicit(all[0], all[1], all[2]);
    return projection_(mixed.transpose(1, 2).reshape({batch, length, width}));
  }

 private:
  // Without dropout of its own: with it, LibTorch would not use its fused kernel on a CPU.
  static torch::Tensor attend_fused(const torch::Tensor& query, const torch::Tensor& key,
                                    const torch::Tensor& value) {
    return at::scaled_dot_product_attention(query, key, value, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                            /*is_causal=*/true);
  }

  torch::Tensor attend_explicit(const torch::Tensor& query, const torch::Tensor& key,
                                const torch::Tensor& value) {
    const std::int64_t length = query.size(2);
    const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(3)));
    const torch::Tensor scores = torch::matmul(query, key.transpose(-2, -1)) * scale;
    const torch::Tensor future =
        torch::ones({length, length}, scores.options().dtype(torch::kBool)).triu(1);
    const torch::Tensor weights =
        torch::softmax(scores.masked_fill(future, -std::numeric_limits<float>::infinity()), -1);
    return torch::matmul(dropout_(weights), value);
  }

  std::int64_t heads_;
  bool fused_;
  Linear query_key_value_{nullptr};
  Linear projection_{nullptr};
  Dropout dropout_{nullptr};
};
TORCH_MODULE(Attention);

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const GptOptions& options) {
    const std::int64_t width = options.width;
    attention_norm_ = register_module("attention_norm", LayerNorm(LayerNormOptions({width})));
    attention_ = register_module("attention", Attention(options));
    expansion_norm_ = register_module("expansion_norm", LayerNorm(LayerNormOptions({width})));
    expansion_ = register_module("expansion", Linear(width, 4 * width));
    projection_ = register_module("projection", Linear(4 * width, width));
    dropout_ = register_module("dropout", Dropout(options.dropout));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = x + dropout_(attention_(attention_norm_(x)));
    return y + dropout_(projection_(torch::gelu(expansion_(expansion_norm_(y)))));
  }

 private:
  LayerNorm attention_norm_{nullptr};
  Attention attention_{nullptr};
  LayerNorm expansion_norm_{nullptr};
  Linear expansion_{nullptr};
  Linear projection_{nullptr};
  Dropout dropout_{nullptr};
};
TORCH_MODULE(Block);

}  // namespace

GptImpl::GptImpl(const GptOptions& options) {
  const std::int64_t width = options.width;
  token_embedding_ = register_module("token_embedding", Embedding(kVocabulary, width));
  position_embedding_ = register_module("position_embedding", Embedding(options.context, width));
  dropout_ = register_module("dropout", Dropout(options.dropout));
  for (std::int64_t layer = 0; layer < options.layers; ++layer) blocks_->push_back(Block(options));
  register_module("blocks", blocks_);
  norm_ = register_module("norm", LayerNorm(LayerNormOptions({width})));
  head_ = register_module("head", Linear(width, kVocabulary));
  initialise(options.layers);
}

// As published for GPT-2: small normal weights, and what a block adds to its input gets smaller the
// more blocks there are.
void GptImpl::initialise(std::int64_t layers) {
  const torch::NoGradGuard no_gradients;
  const double deviation = 0.02;
  for (auto& parameter : named_parameters()) {
    const std::string& name = parameter.key();
    if (name.ends_with(".bias")) {
      parameter->zero_();
    } else if (parameter->dim() >= 2) {
      const bool adds_to_input = name.ends_with("projection.weight");
      const double blocks_sums = 2.0 * static_cast<double>(layers);
      parameter->normal_(0.0, adds_to_input ? deviation / std::sqrt(blocks_sums) : deviation);
    }
  }
}

torch::Tensor GptImpl::forward(const torch::Tensor& tokens) {
  const torch::Tensor positions = torch::arange(tokens.size(1), tokens.options());
  torch::Tensor x = dropout_(token_embedding_(tokens) + position_embedding_(positions));
  if (!blocks_->is_empty()) x = blocks_->forward(x);
  return head_(norm_(x));
}

}  // namespace text_gpt
