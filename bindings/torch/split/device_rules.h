#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "running_call.h"

namespace spillway::split {

/// The GPU that a call of the program uses or names; nothing: it works on the host alone.
std::optional<c10::Device> device_of(c10::ArrayRef<c10::IValue> arguments);

/// Before a call on that device, on the program's thread, which has backward run there, too, from
/// now on. Why the program cannot be split; empty: it can. A rank has one GPU, on whose default
/// stream everything runs, so that what the program and the executor give it runs in the order in
/// which they do.
std::string objection_to(const CalledOperator& called, c10::Device device);

}  // namespace spillway::split
