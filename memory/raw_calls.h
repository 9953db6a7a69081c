#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway::memory {

// Memory calls that go to the kernel directly. Communication libraries (UCX among them) replace the
// C library's functions, and one of them is known to drop the fifth argument of mremap.

/// The address, or nullptr with errno.
std::byte* raw_mmap(std::byte* wanted, std::size_t size, int protection, int flags, int file = -1,
                    std::uint64_t offset = 0);
std::byte* raw_mremap(std::byte* from, std::size_t size, int flags, std::byte* to);
/// Zero, or -1 with errno.
int raw_munmap(std::byte* address, std::size_t size);
int raw_munlock(std::byte* address, std::size_t size);
int raw_mprotect(std::byte* address, std::size_t size, int protection);
int raw_madvise(std::byte* address, std::size_t size, int advice);

/// Gives every byte a private, writable physical page without changing it: fills holes with zeros
/// and copies pages that are shared with a forked child. Aborts when the memory cannot be had.
void populate(std::byte* address, std::size_t size);

/// Gives every small page there a physical page of its own without making it writable: those that
/// are shared with a forked child are copied, and stay write-protected. False with errno where a
/// filter of system calls refuses it.
bool unshare(std::byte* address, std::size_t size);

/// Gives the physical memory back; what is read next is zero or a fault.
void discard(std::byte* address, std::size_t size);

/// Throws UnsupportedError, naming the call, where `populate` or `discard` would end the process: a
/// filter of system calls forbids what they need. Leaves the memory at `address` as discarded.
void require_advice(std::byte* address, std::size_t size);

/// Ends the process after the kernel refused what must work: prints `call`, the address and which
/// limit or filter refused it. Takes no lock and allocates nothing.
[[noreturn]] void die_of_refusal(const char* call, const void* address, int error);

}  // namespace spillway::memory
