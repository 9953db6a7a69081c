#pragma once

#include <compare>
#include <cstdint>

namespace spillway {

/// When in a training step an operator runs.
enum class OpPhase : std::uint8_t {
  kUnknown,
  kForward,   ///< On the way to a loss: autograd keeps account of it, or it runs among such ones.
  kBackward,  ///< Inside of a backward pass; also what checkpointing computes anew there.
  kOther,     ///< The rest: data, evaluation, metrics, clipping, optimizer.
};

/// A node of the graph that backward runs through. Later nodes of a thread have higher numbers.
struct AutogradNode {
  std::uint64_t thread = 0;  ///< That made it, as LibTorch numbers threads from 1; 0: no node.
  std::uint64_t number = 0;  ///< LibTorch's sequence number, counted per thread.

  bool is_some() const { return thread != 0; }
  auto operator<=>(const AutogradNode&) const = default;
};

/// What autograd knows of an operator that runs.
struct AutogradFacts {
  OpPhase phase = OpPhase::kUnknown;
  AutogradNode made = {};     ///< That of this operator: its gradients are computed in there.
  AutogradNode runs_in = {};  ///< The one that backward runs at the moment.
};

}  // namespace spillway
