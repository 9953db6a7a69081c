#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <optional>

#include "spillway/phantoms/call_outputs.h"
#include "spillway/recompute/element_lists.h"

namespace spillway::phantoms {

/// What a call makes that makes a new tensor of each in its lists: learned from calls for one of
/// them, which `of_members` tells, so that a trial takes the memory of one and not of all
/// parameters. Nothing for other calls, and where a call for two of them does not make what two
/// calls make.
std::optional<CallOutputs> outputs_by_members(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
    const std::function<CallOutputs(const recompute::ListMembers&)>& of_members);

}  // namespace spillway::phantoms
