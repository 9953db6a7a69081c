#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKey.h>

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "parameter_storages.h"
#include "spillway/recompute/element_lists.h"
#include "spillway/runtime/runtime.h"

namespace spillway::torch_binding {

/// Of `--update host`: optimizers write tensors of a GPU on the host.
class HostUpdates {
 public:
  /// For the whole process, before the first operator. `key`: where operators are seen.
  static void switch_on(c10::DispatchKey key);
  static bool are_on() noexcept { return are_on_.load(std::memory_order_relaxed); }
  /// Whether optimizers are made of it, and the host has a kernel for it that does the same to each
  /// element.
  static bool may_be_of_update(const c10::OperatorHandle& op);

 private:
  inline static std::atomic<bool> are_on_{false};
};

/// What a thread's optimizer works on after a backward pass. An operator on lists is one of an
/// optimizer. Of others it is known by its tensors: all were there before the pass ended, or come
/// from the update itself; and it writes one of them in place, or reads one that is a parameter or
/// was updated before; a copy in another type may also read a gradient, as that for a master copy
/// of the parameter does. So activations of a validation, which come after the pass, stay on the
/// GPU, and so do its parameters under autocast, as copies in a smaller type are none of an update.
class UpdatedTensors {
 public:
  void clear() { *this = {}; }
  /// The GPU has made these results since the backward pass.
  void note_made(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> results);
  /// The host has carried this out.
  void note_updated(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                    c10::ArrayRef<c10::IValue> results);
  bool may_go_on_with(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                      const ParameterStorages& parameters);

 private:
  bool is_gradient(const c10::Storage& storage, const ParameterStorages& parameters);

  ParameterStorages made_;
  ParameterStorages updated_;
  std::optional<ParameterStorages> gradients_;  ///< Of the pass, once they are asked for.
};

/// A call on a GPU's tensors, or on lists of them, that the host can carry out, for those members
/// that are paged: by the kernels of the CPU, on the pages as they lie in host memory.
class HostCall {
 public:
  HostCall(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

  /// Numbers of its members, 0 where it has no lists; empty: it is for the GPU as a whole.
  const recompute::ListMembers& members() const { return members_; }
  bool makes_results() const { return makes_results_; }  ///< Else it hands back what it writes.
  /// Carries it out for these members, and says for which of them it could not be done, since host
  /// memory or a result is too small or something holds them on the GPU. Results, where it makes
  /// some, are in `results` by member. Throws as `Runtime::begin_op`, and what the kernel throws.
  recompute::ListMembers run(std::vector<at::Tensor>& results);

 private:
  struct Operand {
    std::size_t argument;
    at::Tensor tensor;
    bool writes;
  };
  class Held;

  bool copies_elsewhere(std::size_t member) const;
  std::string objection_to(std::size_t member) const;
  std::string objection_to(const Operand& operand, const at::Tensor& lead) const;
  std::vector<Operand> operands_of(std::size_t member) const;
  std::vector<swap::HostUse> uses_of(const std::vector<Operand>& operands) const;
  void copy_numbers();
  void start_way_out(std::size_t first, std::size_t count);
  at::Tensor make_result(const at::Tensor& like) const;
  bool run(std::size_t member, std::vector<Operand>& operands);
  void run_pieces(std::size_t member, const std::vector<Operand>& operands, const Held& held);
  void run_piece(torch::jit::Stack stack, const std::vector<Operand>& operands,
                 const std::vector<at::Tensor>& pieces);

  const c10::OperatorHandle& op_;
  torch::jit::Stack arguments_;
  bool is_of_lists_;
  runtime::Runtime* runtime_ = nullptr;
  bool makes_results_;
  bool copies_;  ///< And does nothing else, but for a change of type.
  recompute::ListMembers members_;
};

}  // namespace spillway::torch_binding
