#pragma once

#include <cstdint>
#include <vector>

#include "queued_memory.h"

namespace spillway::pipeline {

/// A layer per stage: its operators of forward and backward, sums of gradients, and nothing else.
class EvenTrainer {
 public:
  static constexpr Duration kForward = std::chrono::seconds(1);
  /// Of a layer's input and of its weight.
  static constexpr Duration kGradient = std::chrono::seconds(1);

  /// With `in_parts` an operator for each gradient, else one for both.
  EvenTrainer(QueuedMemory& memory, std::uint32_t stages, bool in_parts = false);

  void train_on_micro_batch();

 private:
  struct Gradients {
    StorageOrdinal input, weight;
  };

  Gradients backward(std::size_t layer, std::uint64_t node, StorageOrdinal of,
                     StorageOrdinal input);
  StorageOrdinal run(const AutogradFacts& autograd, const std::vector<OperatorUse>& uses,
                     Duration time);
  void add_up(std::size_t of, StorageOrdinal gradient);

  QueuedMemory& memory_;
  const bool in_parts_;
  std::vector<StorageOrdinal> parameters_;
  std::vector<StorageOrdinal> gradients_;
  std::uint64_t nodes_ = 0;
};

}  // namespace spillway::pipeline
