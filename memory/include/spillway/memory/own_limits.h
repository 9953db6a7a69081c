#pragma once

#include <sys/resource.h>

#include <cstddef>

namespace spillway::memory {

// Limits of address space and writable memory (RLIMIT_AS, RLIMIT_DATA) that the program sets for
// itself bound what it takes itself. What is reserved for tensors is not its doing and bounded by
// the budget, so it is added to what the kernel is told. Everything here is for any thread, signal
// handlers and forked children too.

/// Does what prlimit(2) does for this process; `wanted` and `told` may be null. Returns 0, or -1
/// with errno.
int change_own_limit(int resource, const rlimit* wanted, rlimit* told) noexcept;

/// Tells the kernel the limits as the program has set them, for another program that is about to
/// take the place of this one (exec); or, with `is_over`, that this has failed.
void hand_on_own_limits(bool is_over) noexcept;

/// Changes a limit of writable memory that the program has set for itself by what of the memory
/// that is reserved for tensors can be written to from now on; negative: no more.
void follow_writable(std::ptrdiff_t bytes) noexcept;

/// Makes room for `bytes` of ours below a limit that the program has set for itself. False where
/// there is none, or none that can be raised.
bool raise_own_limits(std::size_t bytes) noexcept;

}  // namespace spillway::memory
