#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway::memory {

// For a child after fork(2), which inherits the pages of the arena but no mapper: what was resident
// reads as it was, empty pages would read as zeros. Nothing here may be called in the process that
// owns the mapper. No lock is taken and nothing is allocated, so a signal handler may call it.

/// Ends every access to the pages with a signal, until one of the calls below fills them.
void seal_pages(std::byte* first, std::size_t pages);

/// Makes present pages writable. Pages that the parent had write-protected need it.
void make_pages_writable(std::byte* first, std::size_t pages);

/// Lets the pages show the bytes of `file` from `offset` on; writes stay private to the child.
/// Returns false, with nothing changed, when the kernel refuses.
bool show_file(std::byte* first, std::size_t pages, int file, std::uint64_t offset);

/// Memory of one page to fill for `place_page`; null when the kernel has none.
std::byte* stage_page();

/// Puts a staged page under the sealed `page` at once: another thread sees all of its bytes or
/// none. It is writable then, unless `write_protected`. Where a filter of system
/// calls forbids mremap, the bytes are copied. Returns false with errno, and the page still sealed,
/// when the kernel refuses that too.
bool place_page(std::byte* page, std::byte* staged, bool write_protected = false);

}  // namespace spillway::memory
