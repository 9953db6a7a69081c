#pragma once

#include "spillway/preload/hooks.h"

/* Of functions that stand for those of other libraries. */
#define SPILLWAY_VISIBLE __attribute__((visibility("default")))

namespace spillway::preload {

/// What the core wants to be told, or null before it is there. Any thread, signal handlers too.
const SpillwayHooks* registered_hooks();

}  // namespace spillway::preload
