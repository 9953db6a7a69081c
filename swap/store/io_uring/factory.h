#pragma once

#include <memory>

#include "spillway/swap/spill_store.h"
#include "store/extent_file.h"
#include "store/notifier.h"

namespace spillway::swap {

/// io_uring straight from and to tensor memory. Ask `why_no_io_uring()` first: throws
/// UnsupportedError with that text.
std::unique_ptr<SpillStore> make_io_uring_store(std::unique_ptr<ExtentFile> file,
                                                std::size_t queue_depth,
                                                std::shared_ptr<Notifier> notifier);

}  // namespace spillway::swap
