#pragma once

#include <cstddef>

namespace spillway::memory {

// For mappers that live without userfaultfd, and for children after fork(2). No lock is taken and
// nothing is allocated, so a signal handler may call it.

/// Ends every access to the pages with a signal, until one is placed.
void seal_pages(std::byte* first, std::size_t pages);

/// Makes present pages writable.
void make_pages_writable(std::byte* first, std::size_t pages);

/// Memory of one page to fill for `place_page`; null when the kernel has none.
std::byte* stage_page();

/// Puts a staged page under the sealed `page` at once: another thread sees all of its bytes or
/// none. It is writable then, unless `write_protected`. Where a filter of system
/// calls forbids mremap, the bytes are copied. Returns false with errno, and the page still sealed,
/// when the kernel refuses that too.
bool place_page(std::byte* page, std::byte* staged, bool write_protected = false);

}  // namespace spillway::memory
