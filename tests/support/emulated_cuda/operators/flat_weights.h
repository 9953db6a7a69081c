#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace spillway::emulated {

/// Kernel of aten::_cudnn_rnn_flatten_weight: moves the weights of a recurrent network into one new
/// block of the device, of which they are views from then on, and returns the block.
void flatten_weights(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack);

}  // namespace spillway::emulated
