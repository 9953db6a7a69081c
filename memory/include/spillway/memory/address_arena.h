#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace spillway::memory {

/// Number of a page, counted from the start of the arena.
using PageIndex = std::uint32_t;

/// Hands out runs of consecutive pages of the reserved address space, lowest first, and joins
/// neighbouring free runs. Address space only: it knows nothing of frames. Not thread-safe.
class AddressArena {
 public:
  explicit AddressArena(PageIndex page_count);

  /// First page of a free run of `pages` (> 0) pages, or nothing when no run is long enough.
  std::optional<PageIndex> allocate(PageIndex pages);

  /// Takes a run back. It must be exactly one that `allocate` returned.
  void release(PageIndex first, PageIndex pages);

  PageIndex used_pages() const { return used_; }

 private:
  PageIndex page_count_;
  PageIndex used_ = 0;
  std::map<PageIndex, PageIndex> free_;  ///< First page to length, by address.
};

}  // namespace spillway::memory
