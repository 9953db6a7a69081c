#pragma once

#include <cstdint>
#include <string>

#include "text_gpt/gpt.h"
#include "text_gpt/text.h"

namespace text_gpt {

struct SamplingOptions {
  std::string prompt = "The ";
  std::int64_t length = 80;  ///< Bytes to write.
  double temperature = 0.8;  ///< Lower is more predictable.
};

/// Lets the model write, and shows bytes that are no printable character as \xNN. Has its own
/// random numbers, so training goes on as if nothing had happened.
std::string write_text(Gpt& gpt, std::int64_t context, const SamplingOptions& options,
                       std::uint64_t seed);

/// Mean loss per byte over `batches` batches of held-out text, the same ones in every call.
double held_out_loss(Gpt& gpt, const Text& text, std::int64_t batches, std::int64_t batch);

}  // namespace text_gpt
