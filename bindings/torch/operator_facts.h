#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

#include "spillway/recompute/operator_cache.h"

namespace spillway::torch_binding {

/// How a kernel treats an argument. A view shares the memory of its argument, and its kernel
/// touches none of it. A result (`out=`) is written, and grows in its storage where it is empty.
enum class Access { kRead, kWrite, kView, kResult };

/// What an operator's schema and registrations say about its kernel.
struct OperatorFacts {
  explicit OperatorFacts(const c10::OperatorHandle& op);

  bool is_composite;         ///< Stands for its parts, which come by on their own above autograd.
  bool fills_outputs;        ///< Else it only hands memory out.
  bool makes_blanks;         ///< Trainers fill its outputs by hand, past the operators.
  bool uses_whole_storages;  ///< More than its arguments show.
  bool touches_nothing;      ///< Only makes views.
  bool begins_with_list;     ///< The first argument is one.
  bool is_replayable;        ///< May run again on the host, arguments permitting.
  bool is_replayable_on_cuda;
  bool fills_in_secret;          ///< Its schema does not say which tensors it fills.
  bool goes_on;                  ///< Past its return, on streams of its own: a collective.
  std::uint64_t name_hash;       ///< Of name and overload, the same in every process.
  std::vector<Access> accesses;  ///< One per argument.
};

using OperatorFactsCache = recompute::OperatorCache<OperatorFacts>;

}  // namespace spillway::torch_binding
