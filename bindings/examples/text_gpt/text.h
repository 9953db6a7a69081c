#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace text_gpt {

/// Every byte is a token, so any file in any language is text and no vocabulary has to be learnt.
inline constexpr std::int64_t kVocabulary = 256;

struct Tokens {
  torch::Tensor input;   ///< [batch, context], long
  torch::Tensor target;  ///< The same text, one byte further.
};

enum class Part { kTraining, kHeldOut };

/// The text to learn from. Its last tenth is held out for evaluation.
class Text {
 public:
  /// Joins the files in the given order. Throws `trainer::BadInput` when one cannot be read, or
  /// when the text is too short for the context. Batches come on `device`.
  Text(const std::vector<std::filesystem::path>& files, std::int64_t context, torch::Device device);

  /// Stretches at random places, which depend on `seed` and `number` only.
  Tokens batch(Part part, std::int64_t size, std::uint64_t seed, std::int64_t number) const;

  std::int64_t size() const { return bytes_.numel(); }

 private:
  torch::Tensor bytes_;
  std::int64_t context_;
  torch::Device device_;
  std::int64_t training_size_;
};

/// Texts that every Debian system has, in a fixed order: the licences in
/// /usr/share/common-licenses.
std::vector<std::filesystem::path> default_files();

}  // namespace text_gpt
