#pragma once

#include <memory>

#include "spillway/swap/spill_store.h"
#include "store/doorbell.h"
#include "store/extent_file.h"

namespace spillway::swap {

/// pread and pwrite on a few threads. Possible everywhere.
std::unique_ptr<SpillStore> make_posix_store(std::unique_ptr<ExtentFile> file,
                                             std::size_t queue_depth,
                                             std::shared_ptr<Doorbell> bell);

}  // namespace spillway::swap
