#pragma once

#include "spillway/preload/hooks.h"

namespace spillway::torch_binding {

/// Takes the hooks for the functions of other libraries that the core itself replaces, where there
/// is no preload library. Once per process.
void register_linked(const SpillwayHooks& hooks);

}  // namespace spillway::torch_binding
