#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

namespace text_gpt {

struct GptOptions {
  std::int64_t layers = 6;
  std::int64_t width = 256;
  std::int64_t heads = 4;
  std::int64_t context = 512;
  double dropout = 0.1;
  /// fused: scaled_dot_product_attention. explicit: all context x context weights are in memory.
  std::string attention = "fused";
};

/// A decoder-only transformer with pre-normalisation and learnt positions.
class GptImpl : public torch::nn::Module {
 public:
  explicit GptImpl(const GptOptions& options);

  /// Tokens [batch, length] to logits [batch, length, vocabulary]; length may be less than the
  /// context.
  torch::Tensor forward(const torch::Tensor& tokens);

 private:
  void initialise(std::int64_t layers);

  torch::nn::Embedding token_embedding_{nullptr};
  torch::nn::Embedding position_embedding_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::Sequential blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear head_{nullptr};
};
TORCH_MODULE(Gpt);

}  // namespace text_gpt
