#pragma once

#include <memory>

#include "spillway/base/bytes.h"
#include "spillway/swap/spill_store.h"
#include "store/notifier.h"

namespace spillway::swap {

/// Extents of `extent_size` in memory of this process, at most `capacity` of it; pages are taken
/// when first written. A transfer is a copy made inside `submit`. Throws IoError when the address
/// space is refused.
std::unique_ptr<SpillStore> make_ram_store(Bytes capacity, std::size_t queue_depth,
                                           std::shared_ptr<Notifier> notifier,
                                           Bytes extent_size = Bytes(kExtentBytes));

}  // namespace spillway::swap
