#include "spillway/memory/address_arena.h"

#include <iterator>

#include "spillway/base/assert.h"

namespace spillway::memory {

AddressArena::AddressArena(PageIndex page_count) : page_count_(page_count) {
  if (page_count > 0) free_.emplace(0, page_count);
}

std::optional<PageIndex> AddressArena::allocate(PageIndex pages) {
  SPILLWAY_ASSERT(pages > 0);
  for (auto run = free_.begin(); run != free_.end(); ++run) {
    if (run->second < pages) continue;
    const auto [first, length] = *run;
    free_.erase(run);
    if (length > pages) free_.emplace(first + pages, length - pages);
    used_ += pages;
    return first;
  }
  return std::nullopt;
}

void AddressArena::release(PageIndex first, PageIndex pages) {
  SPILLWAY_ASSERT(pages > 0 && pages <= used_ && first <= page_count_ - pages);
  const auto next = free_.lower_bound(first);
  SPILLWAY_ASSERT(next == free_.end() || first + pages <= next->first);
  used_ -= pages;
  PageIndex length = pages;
  if (next != free_.end() && next->first == first + pages) {
    length += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(first);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    SPILLWAY_ASSERT(before->first + before->second <= first);
    if (before->first + before->second == first) {
      before->second += length;
      return;
    }
  }
  free_.emplace(first, length);
}

}  // namespace spillway::memory
