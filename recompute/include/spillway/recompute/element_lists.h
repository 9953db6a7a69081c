#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <string_view>
#include <vector>

namespace spillway::recompute {

/// Of a GradScaler: multiplies gradients, and sets a number to 1 where one is not finite.
inline constexpr std::string_view kUnscale = "aten::_amp_foreach_non_finite_check_and_unscale_";

/// Whether an operator does the same to each tensor of its lists, of which the first argument is
/// one: foreach and fused optimizers. Any thread.
bool is_by_element(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

using ListMembers = std::vector<std::size_t>;  ///< Numbers of tensors in a list.

/// The arguments of such a call for some of its tensors.
torch::jit::Stack arguments_for(c10::ArrayRef<c10::IValue> arguments, const ListMembers& members);

}  // namespace spillway::recompute
