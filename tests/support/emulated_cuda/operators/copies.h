#pragma once

#include <ATen/core/stack.h>

namespace spillway::emulated {

/// aten::copy_ between devices, or of like layout, is a copy of the runtime in LibTorch, too: that
/// one does it then, takes the arguments from the stack and leaves its result. Returns whether it
/// did. Copies between two devices that would need a kernel go by way of memory of like layout.
bool copied_by_the_runtime(torch::jit::Stack& stack);

}  // namespace spillway::emulated
