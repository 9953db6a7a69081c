#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

namespace spillway::torch_binding {

/// Has Python carry a call out that is its own to dispatch (subclasses of tensors, modes), as
/// LibTorch's fallback does. That hides all keys above Python's from the operators that Python
/// calls, `ours` among them up to 2.12, and nobody would see what they use.
void carry_out_by_python(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                         torch::jit::Stack& stack, c10::DispatchKey ours);

}  // namespace spillway::torch_binding
