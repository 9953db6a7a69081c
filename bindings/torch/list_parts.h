#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "spillway/recompute/element_lists.h"

namespace spillway::torch_binding {

/// How to carry a call over lists of a GPU's tensors out in parts, each with its own memory:
/// nothing but an operator itself makes room on a GPU, so a call that updates all parameters would
/// need room for all of them, their gradients and their moments at once. Empty where it stays
/// whole. A part takes an eighth of the budget, or is one tensor of each list.
std::vector<recompute::ListMembers> parts_on_device(const c10::OperatorHandle& op,
                                                    c10::ArrayRef<c10::IValue> arguments);

}  // namespace spillway::torch_binding
