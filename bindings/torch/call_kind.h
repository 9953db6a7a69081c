#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>

namespace spillway::torch_binding {

/// A hash of what decides which kernel runs: the operator, type, shape, strides, lazy conjugation
/// and negation, and `requires_grad` of its tensors, and its other arguments (stride, groups,
/// dimensions, flags, names). Of real numbers only those that kernels treat in their own way count,
/// small multiples of a half: others, as a learning rate or a bias correction, differ from step to
/// step. Any thread.
std::uint64_t kind_of(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

}  // namespace spillway::torch_binding
