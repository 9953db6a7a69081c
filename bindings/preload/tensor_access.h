#pragma once

#include "spillway/preload/hooks.h"

namespace spillway::preload {

/// Takes the members of `hooks` that are told what the program reads past the operators.
void watch_tensor_access(const SpillwayHooks& hooks);

}  // namespace spillway::preload
