#pragma once

#include <cstdint>
#include <vector>

#include "spillway/profile/step_tape.h"

namespace spillway::planner {

/// One layer of a chain, in pages and microseconds.
struct ChainLayer {
  std::uint32_t output = 1;  ///< Pages that the next layer reads, and backward of both.
  std::uint32_t inside = 0;  ///< Pages that its own backward reads besides.
  std::uint32_t forward = 100;
  std::uint32_t backward = 200;
};

/// A step of forward and backward over layers, with gradients between them. Values in order: the
/// input, which is carried in and stays; then per layer its output and, if it has one, its inside;
/// then the gradients of the outputs from the last layer to the first. Operators: forward by layer,
/// then backward by layer from the last to the first. All of forward may run again.
inline profile::StepTape layer_chain(const std::vector<ChainLayer>& layers) {
  using profile::TapeUse;
  profile::StepTape tape;
  const auto count = static_cast<std::uint32_t>(layers.size());
  std::vector<profile::ValueIndex> outputs{0};
  std::vector<profile::ValueIndex> insides;
  tape.values.push_back({.pages = 1, .becomes = 0});
  const auto add_op = [&](const std::vector<TapeUse>& uses, std::uint32_t time, std::uint32_t peak,
                          bool is_forward) {
    tape.ops.push_back({.signature = tape.ops.size() + 1,
                        .time = std::chrono::microseconds(time),
                        .first_use = static_cast<std::uint32_t>(tape.uses.size()),
                        .use_count = static_cast<std::uint32_t>(uses.size()),
                        .inside_peak_pages = peak,
                        .is_replayable = is_forward});
    tape.uses.insert(tape.uses.end(), uses.begin(), uses.end());
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    add_op({{outputs.back(), false}}, layers[i].forward, layers[i].output + layers[i].inside, true);
    const std::uint32_t backward = 2 * count - 1 - i;
    tape.values.push_back({.pages = layers[i].output, .birth = i, .death = backward});
    outputs.push_back(static_cast<profile::ValueIndex>(tape.values.size() - 1));
    insides.push_back(profile::kNoValue);
    if (layers[i].inside == 0) continue;
    tape.values.push_back({.pages = layers[i].inside, .birth = i, .death = backward});
    insides.back() = static_cast<profile::ValueIndex>(tape.values.size() - 1);
  }
  profile::ValueIndex gradient = profile::kNoValue;
  for (std::uint32_t i = count; i-- > 0;) {
    std::vector<TapeUse> uses{{outputs[i], false}, {outputs[i + 1], false}};
    if (insides[i] != profile::kNoValue) uses.push_back({insides[i], false});
    if (gradient != profile::kNoValue) uses.push_back({gradient, false});
    const auto op = static_cast<profile::OpIndex>(tape.ops.size());
    const std::uint32_t peak = i > 0 ? layers[i - 1].output : 0;
    add_op(uses, layers[i].backward, peak, false);
    if (i == 0) break;
    tape.values.push_back({.pages = peak, .birth = op, .death = op + 1});
    gradient = static_cast<profile::ValueIndex>(tape.values.size() - 1);
  }
  return tape;
}

}  // namespace spillway::planner
