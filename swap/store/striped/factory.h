#pragma once

#include <memory>
#include <vector>

#include "spillway/swap/spill_store.h"
#include "store/notifier.h"

namespace spillway::swap {

/// Spreads extents over several stores that work in parallel; all of them notify `notifier`. A
/// child that refuses extents is left out until it gives some again; its transfers go on. Needs one
/// child.
std::unique_ptr<SpillStore> make_striped_store(std::vector<std::unique_ptr<SpillStore>> children,
                                               std::shared_ptr<Notifier> notifier);

}  // namespace spillway::swap
