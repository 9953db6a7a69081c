#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <vector>

#include "running_call.h"
#include "spillway/pipeline/ownership/directory.h"
#include "spillway/recompute/element_lists.h"

namespace spillway::split {

/// Whether an operator does the same to each tensor of its lists, of which the first argument is
/// one: foreach and fused optimizers.
bool is_by_element(const CalledOperator& called);

using recompute::ListMembers;
/// Of a tensor whose storage has a number; else null.
using FactsOf = c10::function_ref<const pipeline::StorageFacts*(const at::Tensor&)>;

/// The tensors of such lists by the rank that keeps them; none: all. Where the first list's is on
/// all, as a loaded state is, the next one's tells. One of which nothing tells, and whose call may
/// wait, waits alone. Parameters that all ranks update are with none of a rank's.
std::vector<ListMembers> by_place(const CalledOperator& called, FactsOf facts_of);

/// Runs an operator whose arguments lie on the stack, as one that the program has called.
using RunOperator = c10::function_ref<void(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                                           torch::jit::Stack& stack, const runtime::OpTraits&)>;

/// Runs such a call for the tensors of each group, in place of one that would bring all to the
/// first one's rank.
void run_in_groups(const CalledOperator& called, const std::vector<ListMembers>& groups,
                   RunOperator run);

/// aten::clone of a tensor on the stack, of whose memory format nothing is said.
void run_clone(c10::DispatchKeySet below, torch::jit::Stack& stack, const runtime::OpTraits& traits,
               RunOperator run);

}  // namespace spillway::split
