#pragma once

#include "spillway/preload/hooks.h"

namespace spillway::preload {

/// From now on `hooks.before_flag` runs before the program sets a flag of LibTorch.
void watch_process_flags(const SpillwayHooks& hooks);

}  // namespace spillway::preload
