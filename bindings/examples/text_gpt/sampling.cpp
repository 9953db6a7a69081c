#include "text_gpt/sampling.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace text_gpt {
namespace {

/// Switches dropout and gradients off while it lives.
class Inference {
 public:
  explicit Inference(Gpt& gpt) : gpt_(gpt) { gpt_->eval(); }
  ~Inference() { gpt_->train(); }
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

 private:
  Gpt& gpt_;
  torch::NoGradGuard no_gradients_;
};

// A young model writes any byte, and a log must stay readable.
std::string printable(const std::vector<std::int64_t>& bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::int64_t byte : bytes) {
    if (byte == '\n' || (byte >= ' ' && byte <= '~'))
      text += static_cast<char>(byte);
    else
      text += {'\\', 'x', digits[byte / 16], digits[byte % 16]};
  }
  return text;
}

}  // namespace

std::string write_text(Gpt& gpt, std::int64_t context, const SamplingOptions& options,
                       std::uint64_t seed) {
  const Inference inference(gpt);
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const torch::Device device = gpt->parameters().front().device();
  std::vector<std::int64_t> written;
  for (const unsigned char byte : options.prompt) written.push_back(byte);
  for (std::int64_t count = 0; count < options.length; ++count) {
    const auto seen = std::min<std::int64_t>(context, static_cast<std::int64_t>(written.size()));
    const torch::Tensor tokens =
        torch::tensor(std::vector<std::int64_t>(written.end() - seen, written.end()))
            .unsqueeze(0)
            .to(device);
    const torch::Tensor logits = gpt->forward(tokens)[0][-1];
    const torch::Tensor chances = torch::softmax(logits / options.temperature, 0).cpu();
    written.push_back(
        torch::multinomial(chances, 1, /*replacement=*/false, generator).item<std::int64_t>());
  }
  return printable(written);
}

double held_out_loss(Gpt& gpt, const Text& text, std::int64_t batches, std::int64_t batch) {
  const Inference inference(gpt);
  double sum = 0.0;
  for (std::int64_t number = 0; number < batches; ++number) {
    const Tokens tokens = text.batch(Part::kHeldOut, batch, /*seed=*/0, number);
    const torch::Tensor logits = gpt->forward(tokens.input);
    sum += torch::cross_entropy_loss(logits.view({-1, kVocabulary}), tokens.target.view(-1))
               .item<double>();
  }
  return sum / static_cast<double>(batches);
}

}  // namespace text_gpt
