#pragma once

namespace spillway::memory {

/// Does what mlockall(2) does, except for what is reserved for tensors: the kernel would fill all
/// of it, in use or not, and what is locked could not leave. Returns 0, or -1 with errno. Any
/// thread; allocates nothing.
int lock_all_but_reserved(int flags) noexcept;

/// Tells whether the program has locked what is reserved all the same, by a system call of its own:
/// the kernel touches pages then that belong to nobody. A signal handler may call it.
bool is_reservation_locked() noexcept;
inline constexpr const char* kLockedByItself =
    "the program has locked all of its memory by a system call of its own, with the addresses that "
    "are reserved for tensors; mlockall of the C library leaves these out";

}  // namespace spillway::memory
