#pragma once

#include <optional>
#include <string>

#include "cpu_call.h"

namespace spillway::emulated {

/// What the sizes and types of the results follow from: sizes, strides and types of all tensors,
/// and all integers. Two calls of one operator with equal kinds have results of the same form. None
/// where data has a say, or where the call has to run at once for another reason.
std::optional<std::string> kind_of(const CpuCall& call);

}  // namespace spillway::emulated
