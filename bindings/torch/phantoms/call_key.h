#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>

#include "result_rules.h"

namespace spillway::phantoms {

/// Whether all tensors are plain.
bool has_plain_tensors(c10::ArrayRef<c10::IValue> arguments);

/// Whether a tensor of the list selects elements by its bytes.
bool has_mask(const c10::IValue& indices);

/// A hash of what decides what a call makes. Its tensors are plain.
std::uint64_t key_of(const c10::OperatorHandle& op, const ResultRules& rules,
                     c10::ArrayRef<c10::IValue> arguments);

}  // namespace spillway::phantoms
