#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>

#include <optional>

#include "result_rules.h"
#include "spillway/phantoms/call_outputs.h"

namespace spillway::phantoms {

/// What a call makes that fills a large tensor, in place or a new one, with equal or random
/// numbers or element by element from others: learned from calls that fill three small ones, where
/// their draws grow in proportion to what is filled. A run at full size would take the memory and
/// the time that the call itself takes. Nothing for other calls.
std::optional<CallOutputs> outputs_by_small_calls(const c10::OperatorHandle& op,
                                                  const ResultRules& rules,
                                                  c10::ArrayRef<c10::IValue> arguments,
                                                  c10::DispatchKeySet hidden_keys);

}  // namespace spillway::phantoms
