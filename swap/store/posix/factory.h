#pragma once

#include <memory>

#include "spillway/swap/spill_store.h"
#include "store/extent_file.h"
#include "store/notifier.h"

namespace spillway::swap {

/// pread and pwrite on a few threads. Possible everywhere.
std::unique_ptr<SpillStore> make_posix_store(std::unique_ptr<ExtentFile> file,
                                             std::size_t queue_depth,
                                             std::shared_ptr<Notifier> notifier);

}  // namespace spillway::swap
