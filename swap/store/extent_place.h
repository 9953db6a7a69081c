#pragma once

#include <cstddef>

#include "spillway/swap/spill_store.h"

namespace spillway::swap {

/// Whether the file of `place` is still behind its descriptor. False for a place in memory.
bool is_file_open(const ExtentPlace& place);

/// Reads the first `size` bytes of an extent into `memory`, both aligned as for transfers, and
/// checks them if there is a checksum. Returns 0 or an errno value: EBADF when the descriptor means
/// another file by now, EBADMSG for wrong bytes. For a forked child: takes no lock and allocates
/// nothing.
int read_extent(const ExtentPlace& place, std::byte* memory, std::size_t size);

}  // namespace spillway::swap
