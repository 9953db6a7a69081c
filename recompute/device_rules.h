#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string_view>

#include "spillway/recompute/operator_rules.h"

namespace spillway::recompute {

/// Why an operator of that name never runs again on CUDA, whatever its schema says; nullptr: it
/// may.
const char* known_objection_on_cuda(std::string_view name);

/// Whether LibTorch itself says of its CUDA kernel that it gives other bits each time, unless it is
/// told to be deterministic (`at::Context::alertNotDeterministic`).
bool is_unordered_on_cuda(std::string_view name);

/// Why this call cannot run again on CUDA under the settings that hold now; nullptr: it can.
const char* objection_on_device(const c10::OperatorHandle& op, const OperatorRules& rules,
                                c10::ArrayRef<c10::IValue> arguments);

}  // namespace spillway::recompute
