#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "result_rules.h"

namespace spillway::phantoms {

/// A call on arguments like those given, over zeros: what its kernel does is seen, and
/// no bytes are.
class TrialRun {
 public:
  TrialRun(const c10::OperatorHandle& op, const ResultRules& rules,
           c10::ArrayRef<c10::IValue> arguments, c10::DispatchKeySet hidden_keys);

  /// What the call makes. Every generator is then in the state in which it was.
  CallOutputs learn();

  /// Runs the kernel for its draws alone, which come from the call's own generator.
  void draw();

 private:
  c10::DispatchKeySet keys_above() const;
  /// `of`: a generator of the CPU.
  CallOutputs learn_with(const at::Generator& of);
  void run();
  std::vector<std::size_t> result_sizes() const;
  void note_results(CallOutputs& outputs) const;
  void note_tensor(const at::Tensor& tensor, std::vector<const c10::StorageImpl*>& made,
                   CallOutputs& outputs) const;
  bool has_exchanged_arguments() const;

  struct Argument {
    at::Tensor tensor;
    std::size_t bytes = 0;  ///< Of its storage.
    std::vector<std::int64_t> sizes;
  };

  const c10::OperatorHandle& op_;
  const ResultRules& rules_;
  const c10::DispatchKeySet hidden_keys_;
  at::Generator generator_;  ///< The call's own.
  torch::jit::Stack stack_;
  std::vector<Argument> arguments_;  ///< All tensors, also undefined ones, in order.
};

}  // namespace spillway::phantoms
