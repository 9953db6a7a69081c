#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Allocator.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/flat_hash_map.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "spillway/phantoms/call_outputs.h"
#include "spillway/recompute/operator_cache.h"

namespace spillway::phantoms {

class ResultRules;

struct OutputMemoOptions {
  c10::DispatchKeySet hidden_keys;  ///< That do not see the runs of kernels in here.
  /// Calls `trial`, which makes and fills all its tensors on a GPU itself, for a call of `op` with
  /// those arguments. Null: nobody needs to know.
  void (*try_on_gpu)(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                     const std::function<void()>& trial) = nullptr;
  /// For storages of phantoms; null: PhantomMemory.
  c10::Allocator* memory = nullptr;
  std::size_t most_kinds = std::size_t{1} << 16;  ///< Of calls; then it begins anew.
};

/// Knows what operators make: sizes, strides, types, what lies in whose storage, how many random
/// numbers they draw. It looks at no bytes. The first call of a kind runs the kernel once, below
/// autograd, on arguments like those given over pages of zeros. One per thread, so it needs no
/// lock; while a kernel that draws from the default generator runs here, other threads must not
/// draw from it.
class OutputMemo {
 public:
  explicit OutputMemo(OutputMemoOptions options);
  ~OutputMemo();
  OutputMemo(const OutputMemo&) = delete;
  OutputMemo& operator=(const OutputMemo&) = delete;

  /// What the call would make. Two calls are of one kind where operator, grad mode, and the
  /// tensors' sizes, strides and types are equal, and numbers, lists and names that may decide
  /// sizes: a hash of 64 bits stands for them. Where the kernel throws, the reason says what; only
  /// a lack of memory is thrown on. Valid until the next call.
  const CallOutputs& outputs_of(const c10::OperatorHandle& op,
                                c10::ArrayRef<c10::IValue> arguments);

  /// Takes the arguments from the stack, pushes what the call would return, and moves the generator
  /// on as it would have. `outputs` are those of this call, and kPhantoms.
  void make(const CallOutputs& outputs, const c10::OperatorHandle& op, torch::jit::Stack& stack);

  /// Kernels that have run to find out what they make.
  std::uint64_t kinds_learned() const { return learned_; }

 private:
  const CallOutputs& refused(const char* reason);

  const OutputMemoOptions options_;
  recompute::OperatorCache<ResultRules> rules_;
  ska::flat_hash_map<std::uint64_t, std::unique_ptr<CallOutputs>> outputs_;
  CallOutputs refused_;  ///< The latest call that was, for its own arguments.
  std::uint64_t learned_ = 0;
};

}  // namespace spillway::phantoms
