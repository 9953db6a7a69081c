#pragma once

#include "spillway/preload/hooks.h"

namespace spillway::preload {

/// What the core wants to be told, or null before it is there. Any thread, signal handlers too.
const SpillwayHooks* registered_hooks();

}  // namespace spillway::preload
