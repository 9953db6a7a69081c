#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace spillway::split {

/// Whether an operator does the same to each tensor of its lists, of which the first argument is
/// one: foreach and fused optimizers.
bool is_by_element(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

/// The arguments of such a call for some of `size` tensors.
torch::jit::Stack arguments_for(c10::ArrayRef<c10::IValue> arguments, std::size_t size,
                                const std::vector<std::size_t>& members);

/// Which argument of such a call is a number that it raises where it finds something in a tensor.
std::optional<std::size_t> found_argument(const c10::OperatorHandle& op);

}  // namespace spillway::split
