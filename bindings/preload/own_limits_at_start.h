#pragma once

#include "registered_hooks.h"

namespace spillway::preload {

/// Calls `start`, by which this process becomes another program. That one has nothing reserved for
/// tensors, and gets the memory limits that this one has set, without what is reserved.
template <typename Start>
int with_own_limits(const Start& start) {
  const SpillwayHooks* hooks = registered_hooks();
  if (hooks == nullptr || hooks->hand_on_limits == nullptr) return start();
  hooks->hand_on_limits(0);
  const int result = start();
  hooks->hand_on_limits(1);
  return result;
}

}  // namespace spillway::preload
