#pragma once

#include <stddef.h>
#include <sys/types.h>

namespace spillway::preload {

// What stands for bytes that the first rank alone writes (hooks.h, absent_bytes) takes no room in
// the files of another one. Any thread.

/// How many of the last bytes that are to be written may be a hole; 0: none, or not enough.
size_t hole_at_end(const void* memory, size_t size);

/// Makes one where the descriptor is, which moves behind it. False: nothing has happened, and the
/// bytes are to be written.
bool make_hole(int file, size_t size);

}  // namespace spillway::preload
