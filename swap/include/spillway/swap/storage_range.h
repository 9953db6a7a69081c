#pragma once

#include <algorithm>
#include <cstdint>

#include "spillway/base/storage_id.h"

namespace spillway::swap {

inline constexpr std::uint32_t kToTheEnd = static_cast<std::uint32_t>(-1);

/// How an operator uses a paged storage: `count` pages of its `pages`, from `first` on.
struct RangeUse {
  StorageId storage;
  std::uint32_t pages = 0;
  bool writes = false;
  std::uint32_t first = 0;
  std::uint32_t count = kToTheEnd;

  std::uint32_t touched() const { return std::min(count, pages - first); }
  bool is_whole() const { return touched() == pages; }
};

/// Some pages of a paged storage, or all of them.
struct RangePart {
  RangePart(StorageId whole) : storage(whole) {}  // NOLINT: a storage is its largest part.
  RangePart(StorageId whole, std::uint32_t first_page, std::uint32_t page_count)
      : storage(whole), first(first_page), count(page_count) {}
  StorageId storage;
  std::uint32_t first = 0;
  std::uint32_t count = kToTheEnd;
};

}  // namespace spillway::swap
